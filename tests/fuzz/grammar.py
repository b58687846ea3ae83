"""The grammar of random programs: Python with holes.

``<kind>`` is an expression of that kind; ``<=kind>`` a variable of this function, ``<?kind>`` one that can be read,
``<+kind>`` a new one; ``@name`` names a hole, and ``<@name>`` repeats what went into it.  On a line of their own,
``<block>`` stands for statements, ``<loop>`` for the body of a loop, and ``<function a:matrix k:int -> matrix>`` for
the body of a function with these parameters (``-> yield matrix``: a generator; ``+int``: an int of the function
around it is nonlocal there).

Simple forms stand first: a failing program shrinks towards them.  A form that often raises or breaks the graph is
marked ``!`` and drawn more rarely, so that most programs get far.
"""

from __future__ import annotations

import re
import sys

HOLE = re.compile(r"<([=?+]?)([a-z]*)(?:@([a-z]+))?>")
"""Groups: what is wanted (an expression, a variable, a new one), the kind, the name of the hole."""


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.strip().splitlines()) if line and not line.startswith("# ")]


def _blocks(text: str) -> list[str]:
    return [block.strip("\n") for block in text.strip("\n").split("\n\n")]


# What needs no other expression, by kind.
LEAVES = {
    kind: _lines(text)
    for kind, text in {
        "matrix": "torch.ones(4, 4)\ntorch.arange(16.0).reshape(4, 4)\ntorch.eye(4)",
        "vector": "torch.ones(4)\ntorch.arange(4.0)",
        "scalar": "torch.tensor(2.0)\ntorch.zeros(())",
        "mask": "(torch.eye(4) > 0)\ntorch.ones(4, 4, dtype=torch.bool)",
        "longs": "torch.arange(4)\ntorch.tensor([3, 1, 0, 2])",
        "int": "0\n1\n2\n3\n(-1)\n7",
        "digit": "0\n1\n2\n3",
        "float": "0.5\n2.0\n(-1.5)\n0.0\nmath.pi\nmath.inf",
        "bool": "True\nFalse",
        "str": "'a'\n'b'\n'abc'\n''",
        "key": "'a'\n'b'\n'c'",
        "ints": "[1, 2, 3]\n[]\n[3, 1, 2, 1]",
        "mats": "[torch.ones(4, 4)]\n[torch.eye(4), torch.zeros(4, 4)]",
        "named": "{'a': torch.ones(4, 4)}\n{}",
        "counts": "{'a': 1}\n{'b': 2, 'a': 3}\n{}",
        "pair": "(torch.ones(4, 4), 2)",
        "intset": "{1, 2, 3}\nset()",
        "box": "Box(torch.ones(4, 4))\nDeep(torch.eye(4))",
        "point": "Point(torch.ones(4, 4))",
        "maybe": "None",
        "net": "NET",
        "result": "None",
    }.items()
}

EXPRESSIONS = {
    kind: _lines(text)
    for kind, text in {
        "matrix": """
            (<matrix> + <matrix>)
            <matrix>.sin()
            (<matrix> * <float>)
            (<matrix> - <int>)
            (<vector> * <matrix>)
            (<matrix> / (<matrix>.abs() + 1))
            (-<matrix>)
            torch.cos(<matrix>)
            F.relu(<matrix>)
            (<matrix> @ <matrix>)
            <matrix>.t()
            <matrix>.clone()
            <matrix>.detach()
            <matrix>.reshape(4, 4)
            <matrix>.transpose(0, 1).contiguous()
            ! <matrix>.view(-1, 4)
            torch.where(<mask>, <matrix>, <matrix>)
            torch.where(<mask>, <matrix>, <float>)
            torch.cat([<matrix>[:2], <matrix>[2:]])
            torch.cat([<matrix>, <matrix>], dim=1)[:, :4]
            torch.stack([<vector>, <vector>, <vector>, <vector>])
            ! torch.stack(<mats>).sum(0)
            <matrix>[<longs>]
            <matrix>.masked_fill(<mask>, <float>)
            torch.zeros_like(<matrix>)
            torch.full((4, 4), <float>)
            F.linear(<matrix>, <matrix>, bias=<vector>)
            F.softmax(<matrix>, dim=-1)
            F.layer_norm(<matrix>, (4,))
            F.dropout(<matrix>, p=0.5, training=<bool>)
            torch.rand(4, 4)
            torch.randn_like(<matrix>)
            <matrix>.softmax(0).pow(2)
            <matrix>.clamp(min=<float>)
            <matrix>.double().float()
            <matrix>.to(<matrix>.dtype)
            ! <matrix>.to(torch.float64)
            <matrix>.unsqueeze(0).squeeze(0)
            <matrix>.expand(4, 4)
            <matrix>.flatten().view(4, 4)
            <matrix>.cumsum(<digit> % 2)
            <matrix>.roll(<int>, 0)
            torch.einsum('ij,jk->ik', <matrix>, <matrix>)
            <matrix>.type_as(<matrix>)
            <matrix>.new_ones(4, 4)
            torch.broadcast_to(<vector>, (4, 4))
            ! <matrix>.requires_grad_(False).clone()
            (<matrix> if <bool> else <matrix>)
            (<?matrix> if <?maybe@m> is None else <@m>)
            ! <mats>[<digit>]
            <mats>[-1]
            ! <named>['a']
            ! <named>[<key>]
            <named>.get(<key>, <matrix>)
            <pair>[0]
            <box>.t
            <box>.double
            getattr(<box>, 't')
            <box>(<matrix>)
            <box>.apply(lambda v: v + <int>)
            <box>.apply(torch.sin)
            (<box> + <matrix>).t
            Box.shifted(<matrix>, <int>)
            <point>.t
            replace(<point>, t=<matrix>).t
            <net>(<matrix>)
            <net>(<matrix>, scale=<float>)
            <net>.parts[0](<matrix>)
            (<matrix> * <net>.gain)
            <?fn>(<matrix>)
            <?fn>(<matrix>, <int>)
            <?fn>(<matrix>, k=<int>, key=<int>)
            ! <?fn>(<matrix>, *<ints>, **<counts>)
            (lambda v, k=<int>: v * k)(<matrix>)
            (lambda *vs: sum(vs))(<matrix>, <matrix>)
            twice(torch.sin)(<matrix>)
            ! functools.partial(torch.add, <matrix>, alpha=<int>)(<matrix>)
            functools.reduce(operator.add, <mats>, <matrix>)
            sum(<mats>, <matrix>)
            sum([m for m in <mats>], <matrix>)
            ! next(iter(<mats>))
            ! max(<mats>, key=lambda m: m.dim())
            operator.mul(<matrix>, <float>)
            Pair(<matrix>, <int>).first
            ! looks(<matrix>)
            ! prints(<matrix>)
            ! prints(<matrix>, text=<str>)
            Square.apply(<matrix>)
            [*<mats>, <matrix>][0]
            torch.no_grad()(lambda v: v * 2)(<matrix>)
            ! compiler_core.disable(torch.tanh)(<matrix>)
        """,
        "vector": """
            <matrix>[<digit>]
            <matrix>.sum(0)
            <matrix>.mean(dim=1)
            (<vector> + <vector>)
            (<vector> * <int>)
            <matrix>[:, <digit>]
            <matrix>.diagonal()
            <matrix>.max(dim=1).values
            <matrix>.max(dim=0)[0]
            <matrix>.amax(-1)
            <vector>.flip(0)
            <vector>.exp()
            torch.linspace(0, 1, 4)
            <vector>.sort().values
            torch.rand(4)
            <longs>.float()
            <net>.gain
            <net>.total
            torch.tensor([<float>, <float>, <int>, 1.0])
            <matrix>.unbind(1)[0]
            <matrix>.norm(dim=1)
            <matrix>.view(4, 4).split(2, dim=0)[0][1]
            <matrix>.chunk(2)[1][0]
            <matrix>.topk(4)[0][0]
        """,
        "scalar": """
            <matrix>.sum()
            <matrix>.mean()
            <vector>.max()
            (<scalar> + <float>)
            <matrix>[<digit>, <digit>]
            <vector>.dot(<vector>)
            torch.tensor(<float>)
            <mask>.sum()
            F.mse_loss(<matrix>, <matrix>)
            (<scalar> / 3)
            <matrix>.std()
            torch.rand(())
            ! sum(<matrix>.sum(1))
        """,
        "mask": """
            (<matrix> > <float>)
            (<matrix> < <matrix>)
            (~<mask>)
            (<mask> & <mask>)
            (<mask> | (<matrix> == 0))
            <matrix>.isnan()
            torch.logical_not(<mask>)
        """,
        "longs": """
            <matrix>.argmax(1)
            (<longs> % 3)
            torch.randint(0, 4, (4,))
            torch.randperm(4)
            <vector>.argsort()
            <longs>.flip(0)
        """,
        "int": """
            (<int> + <int>)
            (<int> - <int>)
            (<int> * <int>)
            ! (<int> // <int>)
            ! (<int> % <int>)
            (<int> if <bool> else <int>)
            len(<ints>)
            ! <ints>[<int>]
            <matrix>.shape[0]
            <matrix>.size(-1)
            <matrix>.dim()
            <matrix>.numel()
            (<int> & 3 | <int>)
            (1 << <digit>)
            abs(<int>)
            min(<int>, <int>)
            max(<ints>, default=<int>)
            sum(<ints>)
            sum(i * i for i in <ints>)
            int(<float>)
            ! int(<str>)
            ord(<key>)
            <box>.n
            len(<box>)
            ! <box>[<digit>]
            Box.scale
            ! <box>.missing
            <point>.n
            ! <counts>['a']
            ! <counts>[<key>]
            <counts>.get(<key>, <int>)
            <pair>[1]
            len(<str>)
            <str>.find(<key>)
            <ints>.count(<int>)
            ! <ints>.index(<int>)
            len(<intset>)
            len(<named>)
            len(<mats>)
            <net>.calls
            len(<net>.parts)
            ! checked(<int>)
            ! next(iter(<ints>))
            next((i for i in <ints> if i > 1), <int>)
            functools.reduce(lambda p, q: p + q, <ints>, <int>)
            (lambda p, /, *, q=<int>: p - q)(<int>)
            divmod(<int>, 3)[1]
            round(<float>)
            pow(<int>, 2)
            (<int> or <int>)
            ! hash(<int>)
            ! operator.itemgetter(0)(<ints>)
            COUNT
            TOTALS['a']
            ! int(<scalar>.item() > 0)
            ! int(<longs>[0])
            len(list(halves(<int>)))
            math.prod(<ints>)
            isinstance(<int>, int) + <bool>
        """,
        "float": """
            (<float> + <int>)
            (<float> * <float>)
            ! (<int> / <int>)
            float(<int>)
            math.sqrt(abs(<float>))
            round(<float>, 2)
            (<float> if <bool> else <float>)
            max(<float>, <int>)
            (<float> ** 2)
            math.floor(<float>)
            ! float(<str>)
            ! <scalar>.item()
            ! float(<scalar>)
        """,
        "bool": """
            (<int> > <int>)
            (<int> == <int>)
            (<int> < <int> <= <int>)
            (not <bool>)
            (<bool> and <bool>)
            (<bool> or <bool>)
            (<?maybe> is None)
            (<?maybe> is not None)
            (<?matrix> is <?matrix>)
            (<?ints> is <?ints>)
            (<key> in <counts>)
            (<int> in <ints>)
            (<int> not in <intset>)
            (<str> == <str>)
            (<ints> == <ints>)
            (<ints> < <ints>)
            (<counts> == <counts>)
            (<float> != <float>)
            isinstance(<box>, Deep)
            isinstance(<?maybe>, torch.Tensor)
            hasattr(<box>, 'more')
            hasattr(<box>, 'n')
            callable(<?fn>)
            <str>.startswith(<key>)
            all(i > 0 for i in <ints>)
            any(<ints>)
            bool(<ints>)
            bool(<box>)
            (<box> == <box>)
            (<box> is <box>)
            (<int> in <box>)
            <matrix>.requires_grad
            <matrix>.is_contiguous()
            (<matrix>.dtype == torch.float32)
            (<matrix>.shape == <matrix>.shape)
            torch.is_grad_enabled()
            torch.is_tensor(<?maybe>)
            <net>.training
            ! bool(<scalar> > 0)
            ! torch.equal(<matrix>, <matrix>)
            ! (<scalar> > <float>)
            ! <mask>.any()
            (<intset> <= <intset>)
            (type(<box>) is Box)
            issubclass(Deep, Box)
        """,
        "str": """
            (<str> + <str>)
            str(<int>)
            f'{<?int>}'
            f'{<?float>:.2f}|{<?str>!r:>6}'
            <str>.upper()
            (<str> * <digit>)
            ! <str>[<int>]
            <str>[::-1]
            '-'.join(str(i) for i in <ints>)
            ','.join(<counts>)
            repr(<int>)
            '%s=%d' % (<str>, <int>)
            '{} {k}'.format(<int>, k=<str>)
            type(<box>).__name__
            str(tuple(<matrix>.shape))
            str(<bool>)
            <str>.replace('a', <str>)
            (<str> if <bool> else <str>)
            <str>.split('b')[0]
            f'{<?ints>} {<?int>:03d}'
            str(<matrix>.dtype)
            ! sorted(<str>)[0]
        """,
        "ints": """
            [<int>, <int>]
            [*<ints>, <int>]
            (<ints> + <ints>)
            list(range(<int>))
            list(<ints>)
            <ints>[<int>:<int>]
            <ints>[::-1]
            (<ints> * 2)
            [i + <int> for i in <ints>]
            [i for i in <ints> if i > <int>]
            [i * j for i in <ints> for j in range(2)]
            sorted(<ints>)
            sorted(<ints>, key=lambda i: -i)
            sorted(<ints>, reverse=<bool>)
            sorted(<intset>)
            list(reversed(<ints>))
            list(map(lambda i: i + 1, <ints>))
            list(filter(None, <ints>))
            list(<counts>.values())
            list(<matrix>.shape)
            [len(s) for s in <counts>]
            <box>.items
            list(<box>)
            <point>.seen
            [i for i, s in enumerate(<str>)]
            [p - q for p, q in zip(<ints>, <ints>)]
            list(itertools.chain(<ints>, <ints>))
            list(itertools.islice(itertools.count(<int>), 3))
            list(itertools.accumulate(<ints>))
            [i for i in halves(<int>)]
            <ints>.copy()
            (<ints> or <ints>)
            LOG
            ! <longs>.tolist()
        """,
        "mats": """
            [<matrix>, <matrix>]
            [<matrix>]
            [m * 2 for m in <mats>]
            [m for m in <mats> if m.dim() == 2]
            <mats>[::-1]
            (<mats> + [<matrix>])
            list(<named>.values())
            [part(<matrix>) for part in <net>.parts]
            list(map(torch.sin, <mats>))
            [p + q for p, q in zip(<mats>, <mats>)]
            [m + i for i, m in enumerate(<mats>)]
            ([<matrix>] * 2)
            [(lambda v: v + i)(m) for i, m in enumerate(<mats>)]
            ! list(torch.stack(<mats>).unbind())
            [*map(lambda m: m.cos(), <mats>)]
            list(<?gen>(<matrix>))
            [*<?gen>(<matrix>, <digit>)]
            sorted(<mats>, key=lambda m: m.numel())
        """,
        "named": """
            {'a': <matrix>}
            {<key>: <matrix>, <key>: <matrix>}
            dict(a=<matrix>)
            {**<named>, <key>: <matrix>}
            {k: v + 1 for k, v in <named>.items()}
            dict(zip('ab', <mats>))
            <named>.copy()
            (<named> | {<key>: <matrix>})
            OrderedDict(a=<matrix>)
            {k: v for k, v in <named>.items() if k != <key>}
            dict(<named>, b=<matrix>)
            dict(sorted(<named>.items(), key=operator.itemgetter(0)))
        """,
        "counts": """
            {'a': <int>}
            {<key>: <int>, <str>: <int>}
            dict(<counts>, c=<int>)
            {k: len(k) for k in <counts>}
            {s: i for i, s in enumerate(<str>)}
            {**<counts>, **<counts>}
            dict.fromkeys(<str>, <int>)
            <counts>.copy()
            TOTALS
            dict(sorted(<counts>.items()))
        """,
        "pair": """
            (<matrix>, <int>)
            Pair(<matrix>, <int>)
            (<matrix> * 2, <int>, )
            (<pair> if <bool> else <pair>)
            (lambda v, k: (v, k))(*<pair>)
            tuple([<matrix>, <int>])
        """,
        "intset": """
            {<int>, <int>}
            set(<ints>)
            {i % 3 for i in <ints>}
            (<intset> | <intset>)
            (<intset> & <intset>)
            (<intset> - <intset>)
            <intset>.copy()
        """,
        "box": """
            Box(<matrix>)
            Box(<matrix>, n=<int>)
            Deep(<matrix>)
            Box.of(<matrix>)
            <box>.add()
            <box>.add(<int>, times=<digit>)
            (<box> + <box>)
            (<box> if <bool> else <box>)
        """,
        "point": """
            Point(<matrix>)
            Point(<matrix>, <int>)
            Point(t=<matrix>, seen=<ints>)
        """,
        "maybe": """
            <matrix>
            (<matrix> if <bool> else None)
            <named>.get(<key>)
        """,
        "result": """
            <matrix>
            (<?matrix>, <?matrix>, <int>)
            {'m': <matrix>, 'i': <int>, 's': <str>}
            (<?matrix>, <mats>, <ints>, <named>, <box>)
            [<?matrix>, <float>, <str>, <counts>, <intset>]
            (<box>, <point>, <pair>)
            (<vector>, <scalar>, <mask>, <longs>)
            ! <?fn>
            ! lambda: <?matrix>
        """,
    }.items()
}

STATEMENTS = _blocks("""
<+matrix> = <matrix>

<+int> = <int>

<=matrix> = <matrix>

<=int> = <int>

<=int> += <int>

<=matrix@x> = <@x> * <float>

<+float> = <float>

<+bool> = <bool>

<+str> = <str>

<+vector> = <vector>

<+scalar> = <scalar>

<+mask> = <mask>

<+longs> = <longs>

<+ints> = <ints>

<+mats> = <mats>

<+named> = <named>

<+counts> = <counts>

<+pair> = <pair>

<+intset> = <intset>

<+box> = <box>

<+point> = <point>

<+maybe> = <maybe>

<+matrix>, <+int> = <pair>

<+matrix> = <?matrix>

<+ints> = <?ints>

<+box> = <?box>

<+named> = <?named>

! <+int>, *<+ints> = <ints>

(<+int>, <+int>), <+str> = (<int>, <int>), <str>

<=matrix@x>, <=matrix@y> = <@y>, <@x>

<+matrix> = <+matrix> = <matrix>

if <bool>:
    <block>

if <bool>:
    <block>
else:
    <block>

if <int> > <int>:
    <block>
elif <bool>:
    <block>
else:
    <block>

! if <scalar> > <float>:
    <block>
else:
    <block>

if (<+int@w> := <int>) > 1:
    <block>

for <+int> in range(<digit>):
    <loop>

for <+int> in <ints>:
    <loop>
else:
    <block>

for <+matrix> in <mats>:
    <loop>

for <+int>, <+matrix> in enumerate(<mats>):
    <loop>

for <+matrix>, <+int> in zip(<mats>, <ints>):
    <loop>

for <+str>, <+matrix> in <named>.items():
    <loop>

for <+str> in <counts>:
    <loop>

for <+str>, <+int> in list(<counts>.items()):
    <loop>

! for <+vector> in <matrix>:
    <loop>

for <+str> in <str>:
    <loop>

for <+int> in <box>:
    <loop>

for <+int> in halves(<int>):
    <loop>

for <+int> in (i + 1 for i in <ints>):
    <loop>

for <+matrix> in <?gen>(<matrix>):
    <loop>

<+counter@i> = <digit>
while <@i> > 0:
    <@i> -= 1
    <loop>

<+counter@i> = 0
while True:
    <@i> += 1
    if <@i> > <digit>:
        break
    <loop>

while len(<=ints@l>) > 2:
    <@l>.pop()
    <loop>

try:
    <block>
except ValueError as error:
    <+str> = str(error)

try:
    <block>
except (KeyError, IndexError, ZeroDivisionError) as error:
    <+str> = repr(error)
    <block>
else:
    <block>

try:
    <block>
finally:
    <block>

try:
    <block>
    raise ValueError(<str>)
except Exception as error:
    <+str> = f'{type(error).__name__}: {error}'

! try:
    <block>
except Exception:
    <block>
    raise

! try:
    <+int> = checked(<int>)
except ValueError as error:
    raise RuntimeError('again') from error

with torch.no_grad():
    <block>

with torch.enable_grad():
    <block>

with torch.set_grad_enabled(<bool>):
    <block>

with <box> as <+box>:
    <block>

with grown(<box>, <int>) as <+box>:
    <block>

with contextlib.suppress(ValueError, KeyError):
    <block>

! with torch.autocast('cpu', dtype=torch.bfloat16):
    <block>

with contextlib.nullcontext(<int>) as <+int>, torch.no_grad():
    <block>

! print(<str>)

! print(<int>, <str>, sep='|')

! compiler_core.graph_break()

<=matrix>.add_(<matrix>)

<=matrix>.mul_(<float>)

<=matrix> += <matrix>

<=matrix> -= <int>

<=matrix>[<digit>] = <vector>

<=matrix>[<digit>, <digit>] = <float>

<=matrix>[:, <digit>] += <vector>

! <=matrix>[<mask>] = <float>

<=matrix>.zero_()

<=matrix>.copy_(<matrix>)

<+vector@v> = <=matrix>[<digit>]
<@v>.mul_(2)

<+matrix> = <=matrix>.t()

<+matrix> = <=matrix@x>.view(4, 4)
<@x>.add_(1)

<=matrix>[0].fill_(<float>)

<=matrix>.t().add_(<vector>)

! torch.add(<matrix>, <matrix>, out=<=matrix>)

<=matrix>.relu_()

! <=matrix>.data.mul_(2)

<=matrix> = <=matrix>.detach()

! <=matrix>.requires_grad_()

<=ints>.append(<int>)

<=ints>.extend(<ints>)

<=ints> += <ints>

<=ints>.insert(<digit>, <int>)

! <+int> = <=ints>.pop()

! <=ints>[<digit>] = <int>

! <=ints>[<digit>] += <int>

! del <=ints>[<digit>]

<=ints>[1:2] = <ints>

<=ints>.sort()

<=ints>.reverse()

<=ints>.clear()

! <=ints>.remove(<int>)

<=mats>.append(<matrix>)

! <=mats>[<digit>] = <matrix>

! <=mats>[0].add_(<matrix>)

! <+matrix> = <=mats>.pop(0)

<=mats> += <mats>

<=named>[<key>] = <matrix>

! <=named>['a'].mul_(2)

<+maybe> = <=named>.pop(<key>, None)

<=named>.update(<named>)

<=named>.update(b=<matrix>)

<+matrix> = <=named>.setdefault(<key>, <matrix>)

! del <=named>[<key>]

<=counts>[<key>] = <int>

! <=counts>[<key>] += <int>

<=counts>.clear()

! <+str>, <+int> = <=counts>.popitem()

<=intset>.add(<int>)

<=intset>.discard(<int>)

<=intset> |= <intset>

<=box>.n = <int>

<=box>.n += <int>

<=box>.t = <matrix>

<=box>.t.add_(1)

<=box>.double = <matrix>

<=box>.items.append(<int>)

! <=box>[<digit>] = <int>

<=box>.extra = <matrix>

setattr(<=box>, 'n', <int>)

! del <=box>.n

<=box> += <matrix>

<=point>.t = <matrix>

<=point>.seen.append(<int>)

! <=point>.n += 1

<?net>.calls += <int>

<?net>.total.add_(<vector>)

<?net>.total = <vector>

<?net>.train(<bool>)

<?net>.eval()

<?net>.act = torch.tanh

<?net>.drop.p = 0.25

with torch.no_grad():
    <?net>.gain.mul_(2)

<+named> = {'a': <net>.gain}

COUNT = COUNT + <int>

LOG.append(<int>)

TOTALS[<key>] = <int>

BOX.n += 1

BOX.t = <matrix>

<+box> = BOX

def <+fn>(a, k=<int>, *rest, key=<int>, **more):
    <function a:matrix k:int rest:some key:int more:counts -> matrix>

def <+fn>(a, k=<int>, *rest, key=<int>, **more):
    <function a:matrix k:int rest:some key:int more:counts +int -> matrix>

@twice
def <+fn>(a, k=<int>, *rest, key=0, **more):
    <function a:matrix k:int -> matrix>

<+fn@f> = lambda a, *rest, **more: a + <matrix>

<+fn@f> = functools.partial(lambda a, b, *rest, **more: a * b, <matrix>)

def <+gen>(a, k=2):
    <function a:matrix k:int -> yield matrix>

<+box@b> = Box(<matrix>)
<+fn> = lambda a, *rest, **more: <@b>(a)

def <+fn@f>(a, k=3, *rest, **more):
    return a if k <= 0 else <@f>(a + <float>, k - 1)

<+ints@g> = []
def <+fn>(a, k=1, *rest, **more):
    <@g>.append(k)
    return a + len(<@g>)

<+gen@g> = <?gen>
<+matrix> = next(<@g>(<matrix>), <matrix>)

<+int@i> = iter(<ints>)
<@i> = next(<@i>, 0) + next(<@i>, 1)

match <pair>:
    case (<+matrix>, 0 | 1):
        <block>
    case (_, <+int>) if <bool>:
        <block>

match <ints>:
    case [<+int>]:
        <block>
    case [<+int>, *<+ints>]:
        <block>
    case _:
        <block>

match <counts>:
    case {'a': <+int>}:
        <block>
    case _:
        <block>

match <box>:
    case Deep(n=<+int>):
        <block>
    case Box(n=2 | 3):
        <block>

match <str>:
    case 'a' | 'b':
        <block>

! assert <bool>, <str>

! raise ValueError(<str>)

! <+int> = checked(<int>)

import math as m; <+float> = m.floor(<float>)

! <scalar>.backward()

! <=matrix@x> = <@x>.detach().requires_grad_()
(<@x> * <matrix>).sum().backward()
<+maybe> = <@x>.grad

! torch.manual_seed(<digit>)

! class Local(Box):
    def __len__(self):
        return 9
<+box> = Local(<matrix>)

<+matrix@x> = <matrix>
del <@x>

<+maybe> = <=matrix>

pass
""")

LOOP_STATEMENTS = [
    *_blocks("if <bool>:\n    break\n\nif <bool>:\n    continue\n\nif <int> > 1:\n    <loop>\n    break"),
]
RETURN = "if <bool>:\n    return <ret>"
YIELD = _blocks("yield <ret>\n\nyield from <mats>\n\nfor v in <mats>:\n    yield v")

# How an argument of the program may be made, call by call; ``<=matrix>`` is an argument before it.
INPUTS = {
    kind: _lines(text)
    for kind, text in {
        "matrix": """
            torch.randn(4, 4)
            torch.randn(4, 4).t()
            torch.randn(3, 4)
            torch.randn(4, 4, dtype=torch.float64)
            torch.randn(4, 8)[:, ::2]
            torch.randn(4, 4, requires_grad=True)
            torch.randn(1, 4).expand(4, 4)
            nn.Parameter(torch.randn(4, 4))
            <=matrix>
            <=matrix>[:]
            <=matrix>.t()
        """,
        "vector": "torch.randn(4)\ntorch.randn(4, 4)[:, 1]\n<=matrix>[0]",
        "int": "1\n2\n0\n5\n-3\n2.5\nTrue",
        "float": "0.5\n2.0\n-1.0\nmath.nan\n3",
        "bool": "True\nFalse",
        "str": "'a'\n'b'\n'abc'\n''",
        "ints": "[1, 2, 3]\n[]\n[2]\n[3, 1, 2]\n(1, 2)\nLOG",
        "mats": "[torch.randn(4, 4)]\n[torch.randn(4, 4), torch.randn(4, 4)]\n[<=matrix>, <=matrix>]\n[]\n(<=matrix>,)",
        "named": "{'a': torch.randn(4, 4)}\n{'b': torch.ones(4, 4), 'a': torch.zeros(4, 4)}\n{'a': <=matrix>}\n{}",
        "counts": "{'a': 1}\n{'a': 2, 'b': 3}\n{}\nTOTALS",
        "pair": "(torch.randn(4, 4), 2)\n(<=matrix>, 0)\nPair(<=matrix>, 3)",
        "box": "Box(torch.randn(4, 4))\nBox(torch.randn(4, 4), 2)\nDeep(torch.randn(4, 4))\nBox(<=matrix>)\nBOX",
        "point": "Point(torch.randn(4, 4))\nPoint(<=matrix>, 2, [1])",
        "net": "Net()\nNet().eval()\nNET\nNet(parts=1)",
        "maybe": "None\ntorch.randn(4, 4)\n<=matrix>",
    }.items()
}

if sys.version_info >= (3, 12):
    EXPRESSIONS["str"].append("f'{','.join(f'{i}' for i in <ints>)}'")
