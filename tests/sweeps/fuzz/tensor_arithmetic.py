"""Elementwise forms; `tensor_grammar` explains the brackets."""

from __future__ import annotations

FORMS = {
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
        torch.remainder(<x>, -0.7)
        torch.fmod(<x>, -0.7)
        torch.fmod(<x>, -<x>.abs() - 0.5)
        <x> // -0.3
        <x> % (-<x>.abs() - 0.5)
        torch.div(<x>, -<x>.abs() - 0.5, rounding_mode='floor')
        <x> / <x>
        <x>.clamp(<x>, <x>)
        <x> * <x>.shape[<d>]
        <x> / <x>.numel()
        torch.addcmul(<x>, <t>, <t>, value=2)
        torch.nextafter(<x>, <x>)
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
        <i> // (<i> % 5 - 7)
        <i> % (<i> % 5 - 7)
        torch.fmod(<i>, <i> % 5 - 7)
        torch.div(<i>, <i> % 5 - 7, rounding_mode='trunc')
        torch.div(<i>, <i> % 5 - 7, rounding_mode='floor')
        torch.remainder(<i>, -<p>)
        <n> - <i>
        -7 // (<i> % 4 + 1)
        <i>.to(torch.int8).sum(<d>)
        <i>.to(torch.uint8).sum()
        <i>.to(torch.int8).sum(<d>, dtype=torch.int8)
        <i>.sum(<d>, dtype=torch.int32)
        <i>.to(torch.uint8) - <i>.to(torch.uint8)
        <i>.to(torch.int8) * <i>.to(torch.int8)
        <i>.to(torch.int8).prod(<d>)
        <i>.to(torch.uint8).cumsum(<d>, dtype=torch.uint8)
        <i>.to(torch.uint8).float().mean(<d>)
        -<i>.to(torch.uint8)
        ~<i>.to(torch.uint8)
        <b>.sum()
        <b>.sum(<d>, dtype=torch.int8)
        <b>.cumsum(<d>)
        <b>.prod(<d>)
        <b>.to(torch.uint8) + <b>.to(torch.uint8)
        <i>.amax((0, -1))
        <i>.argmax()
        <i>.cumprod(<d>)
        <i>.cummax(<d>).values
        <i>.logical_not().sum(<d>)
        torch.gcd(<i>, <i>)
        torch.bitwise_left_shift(<i>, <i>.abs() % 4)
        <i>.abs() >> <i>.abs() % 4
        <i>.float() ** 0.5
        <i> ** (<i>.abs() % 3)
        torch.arange(<x>.shape[<d>], device=DEVICE) // 2 * 3 % 4
        torch.arange(5, -5, -2, device=DEVICE) // 3
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
        <i>.all(<d>)
        <i>.any(<d>, keepdim=True)
        <b> == <b>
        <b> < <b>
        <b> * <b>
        <i>.bool() ^ <b>
        torch.isin(<i>, torch.tensor([1, 3, -2], device=DEVICE))
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
}
