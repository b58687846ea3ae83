"""The forms that random tensor programs are made of.

``<x>`` is a tensor of floats, ``<i>`` one of whole numbers, ``<b>`` one of bools, ``<t>`` any, ``<d>`` a dimension,
``<n>`` a small whole number, ``<p>`` a positive one, ``<c>`` a float, ``<type>`` a dtype, ``<flag>`` True or False.  A
form in which some tensors do not fit together raises, and another one is drawn: forms need not say what fits.
"""

from __future__ import annotations


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


FORMS = {
    group: _lines(text)
    for group, text in {
        "pointwise": """
            <x>.sin()
            <x>.cos()
            <x>.exp()
            <x>.clamp(-5, 5).exp2()
            <x>.expm1()
            <x>.abs().log1p()
            (<x>.abs() + 0.1).log()
            (<x>.abs() + 0.1).log2()
            (<x>.abs() + 0.1).log10()
            <x>.abs().sqrt()
            (<x>.abs() + 0.1).rsqrt()
            (<x>.abs() + 0.5).reciprocal()
            <x>.tanh()
            <x>.sigmoid()
            <x>.erf()
            <x>.erfc()
            <x>.atan()
            <x>.asinh()
            <x>.clamp(-0.9, 0.9).asin()
            <x>.clamp(-0.9, 0.9).acos()
            <x>.clamp(-0.9, 0.9).atanh()
            <x>.clamp(-1, 1).tan()
            <x>.clamp(-3, 3).sinh()
            <x>.clamp(-3, 3).cosh()
            (<x>.abs() + 1.1).acosh()
            <x>.abs()
            (-<x>)
            <x>.sign()
            <x>.sgn()
            <x>.square()
            <x>.floor()
            <x>.ceil()
            <x>.round()
            <x>.round(decimals=1)
            <x>.trunc()
            <x>.frac()
            <x>.relu()
            F.relu6(<x>)
            F.gelu(<x>)
            F.gelu(<x>, approximate='tanh')
            F.silu(<x>)
            F.softplus(<x>)
            F.mish(<x>)
            F.elu(<x>)
            F.selu(<x>)
            F.celu(<x>, alpha=0.7)
            F.leaky_relu(<x>, 0.1)
            F.hardtanh(<x>)
            F.hardswish(<x>)
            F.hardsigmoid(<x>)
            F.softsign(<x>)
            F.tanhshrink(<x>)
            F.softshrink(<x>, 0.3)
            F.hardshrink(<x>, 0.3)
            F.logsigmoid(<x>)
            F.threshold(<x>, 0.1, -1.0)
            <x> ** 2
            <x> ** 3
            <x>.abs() ** 0.5
            (<x>.abs() + 0.5) ** -0.5
            (<x>.abs() + 0.5) ** -1
            (<x>.abs() + 0.1) ** <c>
            <c> ** <x>.clamp(-3, 3)
            <x>.nan_to_num(0.5)
            <x>.nan_to_num(1.0, 2.0, -2.0)
            <x>.clamp(min=<c>)
            <x>.clamp(max=<c>)
            <x>.clamp(-0.5, <c>)
            torch.special.entr(<x>.abs())
            torch.special.xlog1py(<x>, <x>.abs())
            torch.xlogy(<x>, <x>.abs() + 0.1)
            torch.sinc(<x>)
            torch.deg2rad(<x>)
            torch.logit(<x>.sigmoid(), eps=0.01)
            torch.heaviside(<x>, <x>)
            torch.ldexp(<x>, <i>.clamp(-3, 3))
            <x>.digamma() * 0 + <x>
            torch.special.i0(<x>)
            torch.special.ndtri(<x>.sigmoid() * 0.9 + 0.05)
            <x>.lgamma()
        """,
        "binary": """
            <x> + <x>
            <x> - <x>
            <x> * <x>
            <x> + <t>
            <x> * <t>
            <t> - <x>
            <x> / (<x>.abs() + 0.5)
            <x> / (<x>.exp() + <c>)
            <x> + <c>
            <x> * <c>
            <c> - <x>
            <x> / <c>
            <n> / (<x>.abs() + 0.5)
            torch.add(<x>, <x>, alpha=<c>)
            torch.sub(<x>, <t>, alpha=2)
            torch.maximum(<x>, <x>)
            torch.minimum(<x>, <t>)
            torch.fmax(<x>, <x>)
            torch.fmin(<x>, <x>)
            torch.atan2(<x>, <x>)
            torch.hypot(<x>, <x>)
            torch.copysign(<x>, <x>)
            torch.copysign(<x>, <c>)
            torch.fmod(<x>, <x>.abs() + 0.5)
            torch.remainder(<x>, <x>.abs() + 0.5)
            torch.remainder(<x>, <c>)
            torch.div(<x>, 0.7, rounding_mode='floor')
            torch.div(<x>, <x>.abs() + 0.5, rounding_mode='trunc')
            <x> // 0.3
            torch.pow(<x>.abs() + 0.1, <x>.clamp(-2, 2))
            torch.lerp(<x>, <x>, 0.3)
            torch.lerp(<x>, <x>, <x>)
            torch.addcmul(<x>, <x>, <x>, value=0.5)
            torch.addcdiv(<x>, <x>, <x>.abs() + 0.5, value=<c>)
            torch.logaddexp(<x>, <x>)
            torch.where(<b>, <x>, <x>)
            torch.where(<b>, <x>, <c>)
            torch.where(<x> > 0, <x>, <t>)
            torch.where(<b>, <t>, 0)
            <x>.masked_fill(<b>, <c>)
            <x> * <b>
            torch.clamp(<x>, <x> - 1, <x> + 1)
            F.mse_loss(<x>, <x>)
            F.smooth_l1_loss(<x>, <x>, reduction='none')
            F.huber_loss(<x>, <x>)
            F.l1_loss(<x>, <x>)
            F.binary_cross_entropy_with_logits(<x>, <x>.sigmoid())
            F.kl_div(<x>.log_softmax(-1), <x>.softmax(-1), reduction='batchmean')
            F.cosine_similarity(<x>, <x>, dim=<d>)
            F.pairwise_distance(<x>, <x>)
            F.cosine_embedding_loss(<x>, <x>, <x>[..., 0].sign())
            F.soft_margin_loss(<x>, <x>.sign())
            F.gaussian_nll_loss(<x>, <x>, <x>.abs() + 0.1)
            F.poisson_nll_loss(<x>, <x>.abs())
            F.triplet_margin_loss(<x>, <x>, <x>)
        """,
        "whole": """
            <i> + <i>
            <i> - <i>
            <i> * <i>
            <i> * <n>
            <i> // <p>
            <i> // -3
            <i> % <p>
            <i> % -3
            torch.div(<i>, <p>, rounding_mode='trunc')
            torch.fmod(<i>, 4)
            <i> / <p>
            <i> / (<i>.abs() + 1)
            <i> & <i>
            <i> | <n>
            <i> ^ <i>
            ~<i>
            -<i>
            <i>.abs()
            <i>.sign()
            <i>.clamp(-2, 5)
            <i> << 2
            <i> >> 1
            <i> ** 2
            <i>.square()
            <i>.sum(<d>)
            <i>.sum()
            <i>.cumsum(<d>)
            <i>.prod(<d>)
            <i>.amax(<d>)
            <i>.amin(<d>, keepdim=True)
            <i>.max(<d>).indices
            <i>.min(<d>).values
            <i>.argmin(<d>)
            <i>.float().mean(<d>)
            torch.maximum(<i>, <i>)
            torch.where(<b>, <i>, <i>)
            torch.bincount(<i>.flatten().abs(), minlength=10)
            <i>.sqrt()
            <i>.sin()
            <i>.sigmoid()
            <i> * 0.5
            <i> == <i>
            <i> < <n>
            <b>.sum(<d>)
            <b>.long().cumsum(<d>)
            <b>.int() * <i>
            torch.arange(<x>.shape[<d>], device=DEVICE)
            torch.arange(1, 2 * <x>.shape[<d>], 2, device=DEVICE)
            <i> - torch.arange(<i>.shape[-1], device=DEVICE)
            F.one_hot(<i>.long() % 5, 5)
        """,
        "bools": """
            <x> > 0
            <x> < <x>
            <x> >= <c>
            <x> == <x>
            <x> != <x>
            <t> <= <n>
            ~<b>
            <b> & <b>
            <b> | <b>
            <b> ^ <b>
            torch.logical_and(<t>, <b>)
            torch.logical_or(<x>, <b>)
            torch.logical_xor(<t>, <t>)
            torch.logical_not(<t>)
            <x>.isnan()
            <x>.isinf()
            <x>.isfinite()
            torch.signbit(<x>)
            <b>.any(<d>)
            <b>.all(<d>, keepdim=True)
            <t>.any()
            <x>.bool().all()
            torch.isclose(<x>, <x>, rtol=0.1)
        """,
        "casts": """
            <x>.to(<type>)
            <t>.to(<type>)
            <t>.float()
            <x>.double()
            <x>.bfloat16()
            <x>.half()
            <x>.bool()
            <x>.nan_to_num(0, 0, 0).clamp(-100, 100).int()
            <x>.nan_to_num(0, 0, 0).clamp(-100, 100).to(torch.int8)
            <x>.nan_to_num(0, 0, 0).clamp(0, 200).to(torch.uint8)
            (<x> * 10).nan_to_num(0, 0, 0).clamp(-1000, 1000).long()
            <i>.to(<type>)
            <i>.double()
            <i>.bool()
            <b>.to(<type>)
        """,
        "reductions": """
            <x>.sum(<d>)
            <x>.sum(<d>, keepdim=True)
            <x>.sum()
            <x>.sum((0, -1))
            <x>.sum((0, 1), keepdim=True)
            <x>.sum(<d>, dtype=torch.float64)
            <x>.mean(<d>)
            <x>.mean(<d>, keepdim=True)
            <x>.mean()
            <x>.mean((-2, -1), keepdim=True)
            <x>.var(<d>)
            <x>.var(<d>, correction=0, keepdim=True)
            <x>.var()
            <x>.std(<d>, keepdim=True)
            torch.var_mean(<x>, <d>, keepdim=True)[0]
            torch.var_mean(<x>, (0, -1))[1]
            <x>.amax(<d>)
            <x>.amax(<d>, keepdim=True)
            <x>.amin((0, -1))
            <x>.max(<d>).values
            <x>.max(<d>).indices
            <x>.min(<d>, keepdim=True).values
            <x>.max()
            <x>.min()
            <x>.argmax(<d>)
            <x>.argmin(<d>, keepdim=True)
            <x>.argmax()
            torch.aminmax(<x>, dim=<d>).max
            <x>.prod(<d>)
            <x>.logsumexp(<d>)
            <x>.logsumexp((0, -1), keepdim=True)
            <x>.softmax(<d>)
            <x>.log_softmax(<d>)
            F.softmin(<x>, <d>)
            <x>.norm()
            <x>.norm(dim=<d>)
            torch.linalg.vector_norm(<x>, 1, <d>, True)
            torch.linalg.vector_norm(<x>, math.inf, <d>)
            torch.linalg.vector_norm(<x>, 3)
            F.normalize(<x>, dim=<d>)
            F.normalize(<x>, p=1, dim=<d>)
            <x>.nansum(<d>)
            <x>.nanmean()
            torch.count_nonzero(<x>, <d>)
            <x>.softmax(<d>).sum(<d>)
            (<x> - <x>.mean(<d>, keepdim=True)).square().mean(<d>)
            (<x> * <x>).sum(<d>)
            (<x>.exp() / <x>.exp().sum(<d>, keepdim=True))
            <x> - <x>.amax(<d>, keepdim=True)
            <x> / <x>.abs().sum(<d>, keepdim=True).clamp(min=0.5)
            F.layer_norm(<x>, <x>.shape[-1:])
            F.layer_norm(<x>, <x>.shape[-1:], <x>, <x>)
            F.layer_norm(<x>, <x>.shape[-2:])
            F.rms_norm(<x>, <x>.shape[-1:])
            F.rms_norm(<x>, <x>.shape[-1:], <x>, 1e-5)
            F.group_norm(<x>, 1)
            F.group_norm(<x>, 2)
            F.instance_norm(<x>)
            F.batch_norm(<x>, None, None, training=True)
            F.batch_norm(<x>, None, None, <x>, <x>, training=True)
            F.cross_entropy(<x>, <i>.long() % <x>.shape[1])
            F.cross_entropy(<x>, <x>.softmax(1))
            F.cross_entropy(<x>, <i>.long() % <x>.shape[1], label_smoothing=0.1, reduction='none')
            F.cross_entropy(<x>, <i>.long() % <x>.shape[1], ignore_index=0, reduction='sum')
            F.nll_loss(<x>.log_softmax(1), <i>.long() % <x>.shape[1])
            F.glu(<x>, <d>)
            F.dropout(<x>, 0.3)
            torch.dist(<x>, <x>)
            <x>.diff(dim=<d>)
            torch.trapezoid(<x>, dim=<d>)
            <x>.renorm(2, 0, 1.0)
        """,
        "scans": """
            <x>.cumsum(<d>)
            <x>.cumprod(<d>)
            <x>.exp().cumsum(<d>)
            <x>.cumsum(<d>, dtype=torch.float64)
            <x>.flip(<d>).cumsum(<d>)
            <x>.cumsum(<d>) / <x>.cumsum(<d>).abs().amax(<d>, keepdim=True).clamp(min=0.5)
            <x>.relu().cumsum(<d>) - <x>.cumsum(<d>)
            <i>.cumsum(<d>) - 1
            <x>.logcumsumexp(<d>)
            <x>.cummax(<d>).values
        """,
        "views": """
            <t>.transpose(<d>, <d>)
            <t>.mT
            <t>.permute(2, 0, 1)
            <t>.permute(1, 0, 2)
            <t>.movedim(0, -1)
            <t>.reshape(-1)
            <t>.flatten(0, 1)
            <t>.flatten(1)
            <t>.unflatten(<d>, (-1, 2))
            <t>.reshape(<t>.shape)
            <t>.unsqueeze(<d>)
            <t>.squeeze(<d>)
            <t>.squeeze()
            <t>.expand_as(<t>)
            <t>[None].expand(3, *[-1] * <t>.dim())
            <t>[<n>]
            <t>[-1]
            <t>[..., <n>]
            <t>[..., 1:]
            <t>[1:]
            <t>[:-1]
            <t>[..., ::2]
            <t>[::2]
            <t>[:, 1:-1]
            <t>[..., None]
            <t>.narrow(<d>, 0, 1)
            <t>.select(<d>, 0)
            <t>.flip(<d>)
            <t>.flip(0, -1)
            <t>.fliplr()
            <t>.rot90()
            <t>.roll(<n>, <d>)
            <t>.roll(<n>)
            <t>.roll((1, -2), (0, 1))
            <t>.unfold(<d>, 2, 1)
            <t>.unfold(-1, 3, 2)
            <t>.diagonal()
            <t>.diagonal(1, -2, -1)
            <t>.chunk(2, <d>)[0]
            <t>.chunk(2, -1)[1]
            <t>.split(2, <d>)[-1]
            <t>.unbind(<d>)[0]
            <t>.contiguous()
            <t>.clone()
            <t>.detach()
            <t>.repeat(2, *[1] * (<t>.dim() - 1))
            <t>.tile(2)
            <t>.repeat_interleave(2, <d>)
            <t>.view_as(<t>)
            <t>.T.contiguous()
            <t>.as_strided((2, 3), (1, 1))
            <x>.tril(<n>)
            <x>.triu(<n>)
            <x>.diag_embed()
            <t>.broadcast_to(2, *<t>.shape)
        """,
        "joined": """
            torch.cat([<x>, <x>], <d>)
            torch.cat([<x>, <t>, <x>], <d>)
            torch.cat([<x>, <x>.sin()], <d>)
            torch.cat([<x>[..., 1:], <x>[..., :1]], -1)
            torch.stack([<x>, <x>], <d>)
            torch.stack([<t>, <t>, <t>])
            torch.hstack([<x>, <x>])
            torch.stack([<x>, -<x>], -1).flatten(-2)
            F.pad(<t>, (1, 2))
            F.pad(<x>, (1, 0, 2, 1), value=<c>)
            F.pad(<x>, (-1, 2))
            F.pad(<x>, (1, 1), mode='reflect')
            F.pad(<x>, (1, 1), mode='replicate')
            F.pad(<x>, (1, 1), mode='circular')
            torch.slice_scatter(<x>, <x>[1:], 0, 1)
            torch.select_scatter(<x>, <x>[0], 0, <n>)
            torch.zeros_like(<x>)
            torch.ones_like(<t>) * <x>
            torch.full_like(<x>, <c>)
            <x>.new_zeros(3, 5)
            torch.linspace(0, 1, 7, device=DEVICE)
            torch.meshgrid(<x>, <x>, indexing='ij')[0]
            torch.outer(<x>, <x>)
            torch.kron(<x>, <x>)
            torch.cdist(<x>, <x>)
            F.interpolate(<x>, scale_factor=2)
            F.pixel_shuffle(<x>, 2)
            F.channel_shuffle(<x>, 2)
            F.max_pool2d(<x>, 2)
            F.max_pool2d(<x>, 3, 2, 1)
            F.avg_pool2d(<x>, 2)
            F.avg_pool2d(<x>, 3, 2, 1)
            F.adaptive_avg_pool2d(<x>, 1)
            F.adaptive_avg_pool2d(<x>, (2, 3))
            F.unfold(<x>, 2)
        """,
        "indexing": """
            <t>[<i>.long() % <t>.shape[0]]
            <t>[:, <i>.long() % <t>.shape[1]]
            <t>[<i>.flatten().long() % <t>.shape[0], <i>.flatten().long() % <t>.shape[1]]
            <t>[..., <i>.flatten().long() % <t>.shape[-1]]
            <t>[<i>.long() % <t>.shape[0] - <t>.shape[0]]
            <t>.index_select(<d>, <i>.flatten().long() % <t>.shape[<d>])
            <x>.gather(<d>, <i>.long() % <x>.shape[<d>])
            <x>.gather(-1, <i>.long() % <x>.shape[-1])
            <x>.gather(-1, <x>.argmax(-1, keepdim=True))
            torch.take_along_dim(<x>, <i>.long() % <x>.shape[-1], -1)
            <x>.scatter(-1, <i>.long() % <x>.shape[-1], <c>)
            <x>.scatter_add(-1, <i>.long() % <x>.shape[-1], <x>)
            <x>.scatter_add(0, <i>.long() % <x>.shape[0], <x>)
            <x>.index_add(0, <i>.flatten().long() % <x>.shape[0], <x>)
            <x>.index_add(-1, <i>.flatten().long() % <x>.shape[-1], <x>, alpha=0.5)
            <x>.index_put((<i>.long() % <x>.shape[0],), <x>, accumulate=True)
            <x>.index_put((<i>.flatten()[:1].long() % <x>.shape[0],), <x>[0])
            <x>.index_copy(0, torch.arange(<x>.shape[0], device=DEVICE).flip(0), <x>)
            <x>.index_fill(<d>, <i>.flatten().long() % <x>.shape[<d>], <c>)
            F.embedding(<i>.long() % <x>.shape[0], <x>)
            F.embedding(<i>.long() % <x>.shape[0], <x>, padding_idx=0)
            F.embedding(<i>.long() % <x>.shape[0], <x>).sum(<d>)
            F.embedding_bag(<i>.long() % <x>.shape[0], <x>, mode='sum')
            torch.zeros_like(<x>).scatter_reduce(0, <i>.long() % <x>.shape[0], <x>, 'amax')
            torch.zeros_like(<x>).index_add(0, <i>.flatten().long() % <x>.shape[0], <x>)
            <x>.masked_fill(torch.arange(<x>.shape[-1], device=DEVICE) > 1, <c>)
            torch.searchsorted(<x>.sort(-1).values, <x>)
            <x>.sort(<d>).values
            <x>.topk(1, <d>).values
            <x>.take(<i>.long() % <x>.numel())
            torch.bucketize(<x>, torch.linspace(-1, 1, 5, device=DEVICE, dtype=<x>.dtype))
        """,
        "products": """
            <x> @ <x>
            (<x> @ <x>).relu()
            <x> @ <x>.mT
            F.linear(<x>, <x>)
            F.linear(<x>, <x>, <x>).relu()
            torch.addmm(<x>, <x>, <x>)
            torch.einsum('ij,kj->ik', <x>, <x>)
            torch.einsum('ij,ij->i', <x>, <x>)
            torch.tensordot(<x>, <x>, 1)
            F.scaled_dot_product_attention(<x>, <x>, <x>)
            (<x> @ <x>.mT).softmax(-1)
            <x>.mv(<x>)
            <x>.dot(<x>)
        """,
        "changes": """
            <x> = <x>.clone().add_(<x>)
            <x> = <x>.clone().mul_(<c>).clamp_(-1, 1)
            <x> = <x>.clone().copy_(<t>)
            <x>.add_(<t>)
            <x>.mul_(<c>)
            <x>.relu_()
            <x>.sub_(<x>.mean(<d>, keepdim=True))
            <x>.copy_(<x>.sin())
            <x>.clamp_(-1, 1)
            <x>.masked_fill_(<b>, <c>)
            <x>.zero_()
            <x>.t_()
            <x>[0] = <x>[-1]
            <x>[1:] = <x>[:-1].clone()
            <x>[..., ::2] = <c>
            <x>[..., 0] += <c>
            <x>[<b>] = <c>
            <x>[<i>.long() % <x>.shape[0]] = <c>
            <x>[:, 1:].mul_(<x>[:, :-1])
            <x>.transpose(0, 1).add_(<x>)
            <x>.diagonal().fill_(<c>)
            <x>.select(<d>, 0).copy_(<x>.select(<d>, -1))
            <x>.index_add_(0, <i>.flatten().long() % <x>.shape[0], <x>)
            <x>.scatter_(-1, <i>.long() % <x>.shape[-1], <c>)
            <x>.cumsum_(<d>)
            <i>.add_(<n>)
            <i>[..., 0] = <n>
            <b>.logical_not_()
        """,
    }.items()
}
WEIGHTS = {
    "pointwise": 16, "binary": 16, "whole": 6, "bools": 4, "casts": 6, "reductions": 18, "scans": 3, "views": 14,
    "joined": 5, "indexing": 7, "products": 1, "changes": 4,
}  # fmt: skip
"""How often a form of each group is drawn."""
