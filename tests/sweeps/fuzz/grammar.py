"""The grammar of random programs: Python with holes.

``<kind>`` is an expression of that kind; ``<=kind>`` a variable of this function, ``<?kind>`` one that can be read,
``<+kind>`` a new one; ``@name`` names a hole, and ``<@name>`` repeats what went into it.  Alone on a line,
``<block>`` stands for statements, ``<loop>`` for the body of a loop, and ``<function a:matrix k:int -> matrix>`` for
the body of a function with these parameters (``-> yield matrix``: a generator; ``+int``: an int of the function
around it is nonlocal there).

Simple forms come first, since a failing program shrinks towards them.  A form that often raises or breaks the graph is
marked ``!`` and drawn more rarely, so that most programs run to the end.
"""

from __future__ import annotations

import re
import sys

HOLE = re.compile(r"<([=?+]?)([a-z]*)(?:@([a-z]+))?>")
"""Groups: the sort (an expression, a variable, a new variable), the kind, and the name of the hole."""


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
            <matrix>.permute(1, 0)
            <matrix>.narrow(0, <digit> % 2, 1).expand(4, 4)
            <matrix>.triu(<int>)
            <matrix>.index_select(0, <longs>)
            <matrix>.gather(1, <longs>.expand(4, 4))
            <matrix>.scatter(0, <longs>.unsqueeze(0), <float>)
            <matrix>.repeat(1, 2)[:, ::2]
            <matrix>.sort(dim=1).values
            <matrix>.lerp(<matrix>, 0.25)
            <matrix>.maximum(<matrix>)
            <matrix>.nan_to_num(0.0)
            <matrix>.swapaxes(0, 1)
            <matrix>.unfold(0, 4, 1)[0]
            <matrix>[..., None].squeeze(-1)
            <matrix>[None, :, :][0]
            <matrix>[:, [0, 1, <digit>, 3]]
            <matrix>[slice(None), slice(None, None, 1)]
            <matrix>.mT
            <matrix>.T
            (<matrix> ** 2)
            (<matrix> // 2)
            (<matrix> % 3)
            (<int> - <matrix>)
            (1 / (<matrix>.abs() + 1))
            torch.addmm(<vector>, <matrix>, <matrix>)
            torch.baddbmm(<matrix>[None], <matrix>[None], <matrix>[None], alpha=0.5)[0]
            torch.bmm(<matrix>[None], <matrix>[None]).squeeze(0)
            torch.outer(<vector>, <vector>)
            torch.kron(<matrix>[:2, :2], <matrix>[:2, :2])
            torch.vstack((<matrix>[:2], <matrix>[2:]))
            torch.meshgrid(<vector>, <vector>, indexing='ij')[0]
            torch.linspace(0, 1, 16).view(4, 4)
            torch.eye(4, dtype=torch.float32)
            torch.tril(<matrix>)
            torch.nn.functional.gelu(<matrix>)
            F.silu(<matrix>)
            F.log_softmax(<matrix>, -1)
            F.normalize(<matrix>, dim=<digit> % 2)
            F.pad(<matrix>, (1, 0))[:, 1:]
            F.embedding(<longs>, <matrix>)
            F.conv1d(<matrix>[None], <matrix>[:, :, None])[0]
            F.avg_pool1d(<matrix>[None], 1)[0]
            F.scaled_dot_product_attention(<matrix>[None], <matrix>[None], <matrix>[None])[0]
            F.batch_norm(<matrix>, None, None, training=True)
            F.leaky_relu(<matrix>, inplace=False)
            nn.Linear(4, 4)(<matrix>)
            nn.Sequential(nn.ReLU(), nn.Identity())(<matrix>)
            ! (lambda v: torch.autograd.grad((v * v).sum(), v)[0])(<matrix>.detach().requires_grad_())
            torch.inference_mode()(lambda v: v + 1)(<matrix>).clone()
            torch.vmap(lambda v: v * <float> + v.sum())(<matrix>)
            torch.vmap(lambda v, w: v * w, in_dims=(0, None), out_dims=1)(<matrix>, <vector>)
            torch.func.grad(lambda v: (v * <matrix>).sin().sum())(<matrix>)
            torch.vmap(torch.func.grad(lambda v: (v**3).sum() + <scalar>))(<matrix>)
            torch.func.jvp(lambda v: v.tanh() * 2, (<matrix>,), (<matrix>,))[1]
            torch.func.jacrev(lambda v: v.cos() * v)(<vector>)
            <matrix>.bfloat16().float()
            <matrix>.int().float()
            <matrix>.to(dtype=torch.float32, copy=True)
            torch.as_tensor(<matrix>)
            torch.tensor([[1.0, 2.0, <int>, <float>]] * 4)
            <box>.scaled
            <box>.t.T
            Box.apply(<box>, torch.cos)
            operator.attrgetter('t')(<box>)
            operator.methodcaller('sin')(<matrix>)
            functools.partial(F.softmax, dim=0)(<matrix>)
            (lambda *, v: v.abs())(v=<matrix>)
            (lambda v, *vs, w=<matrix>: v + w)(*<mats>, <matrix>)
            [m for m in (<matrix>, <matrix>) if m is not None][-1]
            {'p': <matrix>, **<named>}['p']
            max((<matrix>, <matrix>), key=lambda v: v.numel())
            next(filter(lambda m: m.dim() > 1, <mats>), <matrix>)
            (cached(<int>) * <matrix>)
            (kind_of(<int>) * <matrix>)
            Slotted(<matrix>).t
            Frozen(<matrix>, <int>).t
            Stack(<mats>).last(<matrix>)
            <net>.drop(<matrix>)
            <net>.norm(<matrix>)
            <net>.parts[-1].weight.t()
            (<net>.get_parameter('gain') * <matrix>)
            (sum(p.sum() for p in <net>.parameters()) * <matrix>)
            copy.copy(<box>).t
            copy.deepcopy(<point>).t
            torch.from_numpy(<matrix>.detach().numpy())
            (SCALE.get() * <matrix>)
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
            <matrix>.var(dim=<digit> % 2)
            <matrix>.select(0, <digit>)
            <matrix>.prod(0)
            <matrix>.mv(<vector>)
            <vector>.roll(1)
            <vector>.cumsum(0)
            <vector>.repeat_interleave(2)[:4]
            <vector>.clamp(0, 1)
            torch.cat([<vector>[:1], <vector>[1:]])
            torch.stack([<scalar>] * 4)
            torch.einsum('ij->j', <matrix>)
            torch.searchsorted(<vector>.detach().sort().values, <vector>).float()
            torch.bucketize(<vector>, torch.arange(4.0)).float()
            F.one_hot(<longs>, 4).sum(0).float()
            <matrix>.split([1, 3])[1][0]
            <matrix>.tensor_split(2)[0][1]
            torch.full((4,), <int>).float()
            torch.tensor([<int>, *range(3)]).float()
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
            <matrix>.norm()
            <matrix>.logsumexp((0, 1))
            <vector>[<digit>]
            <matrix>.max()
            <matrix>.trace()
            F.cross_entropy(<matrix>, <longs>)
            F.nll_loss(<matrix>, <longs>)
            F.binary_cross_entropy_with_logits(<vector>, <vector>.sigmoid())
            torch.tensor(<int>, dtype=torch.float64).float()
            (<scalar> if <bool> else <scalar>)
            torch.dist(<vector>, <vector>)
            <longs>.sum()
            (<scalar> * <int>)
            (-<scalar>).abs()
        """,
        "mask": """
            (<matrix> > <float>)
            (<matrix> < <matrix>)
            (~<mask>)
            (<mask> & <mask>)
            (<mask> | (<matrix> == 0))
            <matrix>.isnan()
            torch.logical_not(<mask>)
            <matrix>.bool()
            (<matrix> != <matrix>)
            <matrix>.isfinite()
            <matrix>.ge(0)
            torch.isclose(<matrix>, <matrix>)
            (<mask> ^ <mask>)
            torch.ones(4, 4).tril().bool()
        """,
        "longs": """
            <matrix>.argmax(1)
            (<longs> % 3)
            torch.randint(0, 4, (4,))
            torch.randperm(4)
            <vector>.argsort()
            <longs>.flip(0)
            <matrix>.long()[0].clamp(0, 3)
            ((<longs> + 1) % 4)
            (<longs> // 2)
            <matrix>.topk(4).indices[0]
            torch.tensor([0, 1, 2, <digit>])
            <longs>.clone()
            torch.arange(0, 8, 2).clamp(max=3)
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
            (<int> ^ <int>)
            (<int> >> 1)
            (~<int>)
            (+<int>)
            (<int> == <int> == <int>) + 0
            int(<bool>)
            (bool(<int>) + 1)
            (<int>).bit_length()
            len(<str>.split('a'))
            <str>.count('a')
            len(f'{<?str>}')
            (<counts>.get('a') or 0)
            sum(<counts>.values())
            max(<counts>.values(), default=0)
            min((<int>, <int>), key=abs)
            len(set(<ints>))
            len(Stack(<ints>))
            Colour.RED.value
            Colour(<digit> % 2 + 1).value
            Colour['BLUE'].value
            len(Colour)
            Frozen(<matrix>, <int>).n
            Slotted(<matrix>).n
            next(Countdown(<int>), 0)
            sum(Countdown(<digit>))
            collections.Counter(<str>)['a']
            collections.Counter([0, *<ints>]).most_common(1)[0][1]
            collections.deque(<ints>, maxlen=2).count(1)
            Table(<counts>)['zz']
            (<ints> or [0])[-1]
            getattr(<box>, 'n', 0)
            operator.add(<int>, <int>)
            operator.attrgetter('n')(<box>)
            math.gcd(<int>, 4)
            math.comb(4, <digit>)
            cached(<int>)
            kind_of(<matrix>)
            kind_of(<str>)
            <box>.counted
            type(<box>).made
            <matrix>.stride(0)
            <matrix>.storage_offset()
            <matrix>.shape.numel()
            <matrix>.element_size()
            len(<matrix>)
            <net>.norm.normalized_shape[0]
            len(list(<net>.parameters()))
            len(dict(<net>.named_children()))
            len(<net>.state_dict())
            sum(1 for _ in <net>.modules())
            int.from_bytes(b'a', 'big')
            [1, 2, 3].index(2)
            (1, 2, 3)[<digit> % 3]
            len(range(<int>))
            sum(range(<digit>))
            (any(i > 1 for i in <ints>) + 0)
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
            (<float> - <float>)
            (<float> // 2)
            abs(<float>)
            min(<float>, 1)
            math.exp(-abs(<float>))
            (-<float>)
            float('inf')
            (<float>).__float__()
            torch.finfo(torch.float32).eps
            (<int> + 0.5)
            <net>.drop.p
            <net>.norm.eps
            complex(<float>, 1).real
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
            (<str> in <named>)
            (<str> < <str>)
            <str>.isdigit()
            (<str> in 'abc')
            (<?str> is <?str>)
            isinstance(<int>, (int, float))
            isinstance(<?box>, (Deep, Point))
            issubclass(type(<box>), Deep)
            hasattr(<box>, <key>)
            (None is not <?maybe>)
            (<?ints> is not <?ints>)
            (<int> != <int>)
            bool(<str>)
            bool(<counts>)
            (<intset> == <intset>)
            <intset>.isdisjoint(<intset>)
            (Colour.RED is Colour(1))
            (Colour.RED == <int>)
            (Frozen(<matrix>, 1) is None)
            (Slotted(<matrix>) != 1)
            (<ints> == list(<ints>))
            (tuple(<ints>) < (1, 2))
            torch.is_inference_mode_enabled()
            torch.is_autocast_enabled()
            <matrix>.is_leaf
            <matrix>.is_floating_point()
            (<matrix>.device.type == 'cpu')
            (<matrix>.grad is None)
            (<matrix>.ndim == 2)
            isinstance(<net>.parts, nn.ModuleList)
            isinstance(<net>.gain, nn.Parameter)
            callable(<net>.act)
            all([])
            (not <ints>)
            (<counts>.keys() == <counts>.keys())
            ('a' in <counts>.keys())
            (0 in <counts>.values())
            (<box> in [<box>])
            (<float> is <float>)
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
            ('%s=%d' % (<str>, <int>))
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
            <str>.title()
            <str>.strip('a')
            <str>.rjust(5, '.')
            <str>.encode().decode()
            <str>.partition('b')[2]
            <str>.join(['x', 'y'])
            <str>[<digit>:]
            ''.join(reversed(<str>))
            ''.join(sorted(<str>))
            f'{<?float>!r}'
            f'{<?bool>}{<?ints>!s}'
            format(<int>, '04d')
            ('%5.1f' % <float>)
            '{0}{1}{0}'.format(<str>, <int>)
            str(<ints>)
            repr(<counts>)
            str(Colour.BLUE)
            Colour.RED.name
            repr(<pair>[1])
            str(<?maybe> is None)
            max(<str>, 'b')
            chr(97 + <digit>)
            type(<?maybe>).__name__
            <box>.__class__.__name__
            program.__name__
            torch.float32.__repr__()
            str(<matrix>.shape)
            str(<matrix>.device)
            ' '.join(name for name, _ in <net>.named_children())
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
            ([<int>] * <digit>)
            [i for i in range(<int>) if i % 2]
            [*range(<digit>), <int>]
            [len(<str>), *(<int>,)]
            list(<intset>)[:0]
            sorted(<intset>, key=lambda i: -i)
            sorted(<counts>.values())
            list(collections.deque(<ints>, maxlen=2))
            list(collections.Counter(<str>).values())
            list(Countdown(<digit>))
            list(Stack(<ints>))
            Stack(<ints>).doubled()
            list(itertools.takewhile(lambda i: i < 3, <ints>))
            list(itertools.compress(<ints>, [1, 0, 1]))
            list(itertools.starmap(operator.add, zip(<ints>, <ints>)))
            list(itertools.repeat(<int>, <digit>))
            [p + q for p, q in itertools.pairwise(<ints>)]
            [p * q for p, q in itertools.product(<ints>, [1, 2])]
            [p for p, in itertools.combinations(<ints>, 1)]
            [k for k, g in itertools.groupby(<ints>)]
            [p or 0 for p, q in itertools.zip_longest(<ints>, <ints>)]
            [p for p, q in zip(*[iter(<ints>)] * 2)]
            list(dict.fromkeys(<ints>))
            [i for i, _ in enumerate(<mats>, 1)]
            [m.dim() for m in <mats>]
            [(lambda: i)() for i in <ints>]
            [f() for f in [lambda i=i: i for i in <ints>]]
            [i if i > 1 else -i for i in <ints>]
            [colour.value for colour in Colour]
            list(map(int, <str>.replace('a', '1').replace('b', '2').replace('c', '3')))
            list(map(operator.neg, <ints>))
            <ints>[<digit>:]
            <ints>[:-1]
            <ints>[::2]
            [*map(max, <ints>, <ints>)]
            list(bytes(<str>, 'ascii'))
            list(<matrix>.stride())
            echoes(<ints>)
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
            [m.t() for m in <mats>]
            [*<mats>, <matrix>]
            list(<matrix>.chunk(1))
            list((<matrix>, <matrix>))
            [m for m, _ in zip(<mats>, range(2))]
            [f(<matrix>) for f in (torch.sin, torch.cos)]
            [p.detach().expand(4, 4) for p in <net>.parameters() if p.dim() == 1]
            Stack(<mats>)
            list(filter(lambda m: m.dim() == 2, <mats>))
            [m for m in reversed(<mats>)]
            list(torch.broadcast_tensors(<matrix>, <vector>))
            [box.t for box in (<box>, <box>)]
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
            {f'{k}{k}': v for k, v in <named>.items()}
            {k: v for k, v in zip(<counts>, <mats>)}
            dict([('a', <matrix>), ('b', <matrix>)])
            collections.OrderedDict([('b', <matrix>), ('a', <matrix>)])
            defaultdict(lambda: torch.ones(4, 4), <named>)
            Table(<named>)
            {k: <matrix> for k, _ in <net>.named_buffers()}
            {**{'x': <matrix>}}
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
            {k: v for k, v in sorted(<counts>.items(), reverse=True)}
            dict(collections.Counter(<str>))
            collections.Counter(<str>)
            dict(zip(<str>, <ints>))
            (<counts> | {'z': <int>})
            {v: len(v) for v in <str>.split('b')}
            defaultdict(int, <counts>)
            Table(<counts>)
            dict(**{'q': <int>})
            {k: v for d in (<counts>, <counts>) for k, v in d.items()}
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
            frozenset(<ints>)
            (<intset> ^ <intset>)
            <intset>.union(<ints>)
            <intset>.intersection(<ints>, <ints>)
            {len(s) for s in <counts>}
            set(map(abs, <ints>))
            set(range(<digit>))
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
            max(<box>, <box>, key=lambda b: b.n)
            copy.copy(<box>)
            functools.partial(Box, n=<int>)(<matrix>)
            type(<box>)(<matrix>)
            [<box>, <box>][<digit> % 2]
            (<box> and <box>)
            Made(<matrix>)
        """,
        "point": """
            Point(<matrix>)
            Point(<matrix>, <int>)
            Point(t=<matrix>, seen=<ints>)
            replace(<point>, n=<int>)
            copy.copy(<point>)
        """,
        "maybe": """
            <matrix>
            (<matrix> if <bool> else None)
            <named>.get(<key>)
            (<box>.__dict__.get('more') and <matrix>)
            next((m for m in <mats>), None)
            ((<bool> or None) and <matrix>)
            <matrix>.grad
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
            {'c': Colour.RED, 'f': <float>, 'k': <key>}
            [<mats>, <named>, <counts>]
            [<vector>, <vector>.sum(), len(<str>)]
            tuple(<mats>)
            Pair(<matrix>, <str>)
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

<+int>, <+int> = <int>, <int>

<+matrix>, <+matrix> = <matrix>, <matrix>

<+int> = (<+int@w> := <int>) + 1

<+ints> = [y for i in range(<digit>) if (y := i * <?int>) > 1]

[<+int>, <+int>] = [<int>, <int>]

for <+int>, (<+matrix>, <+int>) in enumerate([<pair>, <pair>]):
    <loop>

for <+int> in reversed(<ints>):
    <loop>

for <+int> in Countdown(<digit>):
    <loop>

for <+int>, <+int> in itertools.product(<ints>, range(2)):
    <loop>

for <+str> in sorted(<counts>, key=len):
    <loop>

for <+matrix> in map(torch.sin, <mats>):
    <loop>

for <+int> in iter(lambda: 1, 1):
    <loop>

<+counter@i> = <digit>
while <@i> > 0 and <bool>:
    <@i> -= 1
    <loop>
else:
    <block>

try:
    <block>
except* ValueError:
    <+int> = <int>

try:
    <block>
except ValueError:
    pass
except Exception as error:
    <+str> = type(error).__name__
else:
    <block>
finally:
    <block>

try:
    try:
        <block>
    finally:
        <+int> = <int>
except (ValueError, TypeError):
    <block>

try:
    raise Problem(<str>, <int>)
except Problem as error:
    <+int> = error.n
    <block>

for <+int> in <ints>:
    try:
        <loop>
    finally:
        <=int> += 1

with contextlib.ExitStack() as stack:
    stack.enter_context(torch.no_grad())
    <+box> = stack.enter_context(<box>)
    <block>

with torch.inference_mode(<bool>):
    <block>

with contextlib.closing(Countdown(<digit>)) as <+iter>:
    <block>

with shifted_scale(<int>):
    <block>

with contextlib.redirect_stdout(None):
    <block>

with torch.autocast('cpu', enabled=<bool>):
    <+matrix> = <matrix>.float()

if <?maybe@m> is not None and <bool>:
    <+matrix> = <@m> + 1

if isinstance(<box>, Deep) or <bool>:
    <block>

if not <ints>:
    <block>
else:
    <block>

<+int> = [<int>, <int>][<bool>]

<+float> = <float> if <bool> else <int>

<=str> += <str>

<=bool> = not <bool>

<=float> *= 2

<=int> //= 2

<=int> **= 2

<=int> <<= 1

<=matrix> **= 2

<=matrix> /= 2

<=matrix>[<digit>:] = <float>

<=matrix>[::2] *= 2

<=matrix>[..., 0] = <vector>

<=matrix>[<longs>] = <matrix>

<=matrix>.index_add_(0, <longs>, <matrix>)

<=matrix>.scatter_(1, <longs>.expand(4, 4), <float>)

<=matrix>.masked_fill_(<mask>, <float>)

<=matrix>.clamp_(-1, 1)

<=matrix>.diagonal().add_(1)

<=matrix>.unsqueeze(0).mul_(<float>)

<=matrix>.copy_(<vector>)

<=matrix>.fill_(<int>)

<=matrix>.normal_()

<=vector>.add_(<vector>)

<=vector>[<digit>] = <scalar>

<=scalar> += <scalar>

<=scalar>.mul_(2)

<=mask> |= <mask>

<=longs> += 1

F.relu(<=matrix>, inplace=True)

nn.init.constant_(<=matrix>, 2.0)

<+matrix>, <+matrix> = <matrix>.chunk(2)[0].expand(2, 4).repeat(2, 1), <matrix>

<+vector>, <+longs> = <matrix>.max(dim=1)

<+vector>, *<+mats> = <matrix>.unbind()

<=ints>[:] = <ints>

<=ints>[::2] = <ints>[::2]

<=ints> *= 2

<=ints>.append(len(<?ints>))

<=counts> |= {'m': <int>}

<=counts>.update(z=<int>)

<=counts>.setdefault(<key>, <int>)

<+int> = <=counts>.pop(<key>, 0)

<=intset> &= <intset>

<=intset>.update(<ints>)

<=intset>.clear()

<=box>.n, <=box>.extra = <int>, <int>

<=box>.scale = <int>

<=box>.counted = <int>

<=box>.items[:] = <ints>

<=box>.__dict__['n'] = <int>

vars(<=box>)['n'] = <int>

<=box>.add, <+int> = <=box>.add, <int>

<=point>.n, <=point>.t = <int>, <matrix>

<?net>.scale = <int>

<?net>.register_buffer('extra', <matrix>)

<?net>.parts.append(nn.Linear(4, 4))

<?net>.act = lambda v: v + <int>

<?net>.gain.requires_grad_(<bool>)

<?net>.zero_grad()

<+iter@h> = <?net>.register_forward_hook(lambda m, i, o: o * 2)
<+matrix> = <?net>(<matrix>)
<@h>.remove()

<+iter> = <?net>.register_forward_pre_hook(lambda m, i: (i[0] + 1,))

<+matrix@x> = <matrix>
<@x>.requires_grad and <@x>.register_hook(lambda g: g * 2)

<+matrix> = <=matrix>
<+matrix> = <=matrix>[:]

<+iter@i> = SCALE.set(<int>)
<+matrix> = <matrix>
SCALE.reset(<@i>)

LOG[:] = <ints>

TOTALS.pop(<key>, None)

BOX.items = <ints>

NET.calls += 1

<+gen@g> = <?gen>
<+iter@i> = <@g>(<matrix>)
<+matrix> = next(<@i>, <matrix>)
<@i>.close()

<+iter@i> = running()
next(<@i>)
<+int> = <@i>.send(<int>) + <@i>.send(<int>)

<+iter@i> = running()
next(<@i>)
try:
    <+int> = <@i>.throw(ValueError(<str>))
except (StopIteration, ValueError) as error:
    <+str> = type(error).__name__

def <+fn@f>(a, *rest, **more):
    try:
        return a * 2
    finally:
        <=ints>.append(<int>)

def <+fn@f>(a, *rest, **more):
    for i in range(3):
        try:
            if i == <digit>:
                continue
            a = a + i
        finally:
            a = a * 2
    return a

@functools.wraps(torch.sin)
def <+fn>(a, k=<int>, *rest, **more):
    <function a:matrix k:int -> matrix>

<+fn> = torch.no_grad()(lambda a, *rest, **more: a * 2)

<+fn> = (lambda k: lambda a, *rest, **more: a * k)(<int>)

<+fn@f> = twice(<?fn>)

<+mats@l> = []
for <+int> in range(<digit>):
    <@l>.append(<matrix>)

<+box@b> = <box>
<@b>.other = <@b>
<+matrix> = <@b>.other.t

<+named@d> = {'a': <matrix>}
for <+str@k> in list(<@d>):
    <@d>[<@k>] = <@d>[<@k>] + 1

match <point>:
    case Point(<+matrix>, <+int>):
        <block>

match <named>:
    case {'a': <+matrix>, **<+named>}:
        <block>
    case {}:
        <block>

match <int>:
    case 0 | 1 as <+int>:
        <block>
    case int(<+int>) if <bool>:
        <block>
    case _:
        <block>

match <maybe>:
    case None:
        <block>
    case torch.Tensor():
        <block>

match (<int>, <str>):
    case (1, <+str@s>) | (_, <@s>):
        <block>

! raise Problem(<str>, <int>)

! del <=counts>[<key>]

! <=ints>.pop(<digit>)

! class Inner(Deep):
    kind = <int>
    @property
    def scaled(self):
        return self.t * self.kind
    def add(self, n=1, **named):
        return super().add(n * 2, **named)
Inner.kind += <int>
<+box> = Inner(<matrix>)

from math import pi as p; <+float> = p * <float>

import collections.abc; <+bool> = isinstance(<ints>, collections.abc.Sequence)

! <+int> = <ints>[<scalar>.long().clamp(0, 0)]

! <+mats> = list(<matrix>[<mask>].split(1))[:0]

! <+vector> = <matrix>[<mask>].sum().expand(4)

! <+matrix> = torch.linalg.inv(<matrix> + torch.eye(4) * 9)

! <+ints> = [int(v) for v in <vector>.isnan()]

! <+float> = <matrix>.detach().numpy().sum().item()

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
