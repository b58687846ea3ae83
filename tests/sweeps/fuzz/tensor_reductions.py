"""Forms that reduce many elements to one; `tensor_grammar` explains the brackets."""

from __future__ import annotations

FORMS = {
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
        F.cross_entropy(<x>, <i>.long() % <same>.shape[1])
        F.cross_entropy(<x>, <x>.softmax(1))
        F.cross_entropy(<x>, <i>.long() % <same>.shape[1], label_smoothing=0.1, reduction='none')
        F.cross_entropy(<x>, <i>.long() % <same>.shape[1], ignore_index=0, reduction='sum')
        F.nll_loss(<x>.log_softmax(1), <i>.long() % <same>.shape[1])
        F.glu(<x>, <d>)
        F.dropout(<x>, 0.3)
        torch.dist(<x>, <x>)
        <x>.diff(dim=<d>)
        torch.trapezoid(<x>, dim=<d>)
        <x>.renorm(2, 0, 1.0)
        <x>.sum(<d>) / <x>.shape[<d>]
        <x>.masked_fill(<b>, -math.inf).softmax(<d>)
        <x>.masked_fill(<b>, -math.inf).logsumexp(<d>)
        <x>.masked_fill(<b>, math.nan).nansum(<d>)
        <x>.masked_fill(<b>, math.inf).amin(<d>)
        <x>.masked_fill(<b>, math.nan).max(<d>).indices
        <x>.any(<d>)
        <x>.median(<d>).values
        <x>.sum((0, -1)).sum()
        <x>.half().sum(<d>)
        <x>.bfloat16().mean(<d>)
        <x>.amax((0, -1), keepdim=True)
        <x>.prod()
    """,
    "scans": """
        <x>.cumsum(<d>)
        <x>[..., :9].cumprod(-1)
        <x>.exp().cumsum(<d>)
        <x>.cumsum(<d>, dtype=torch.float64)
        <x>.flip(<d>).cumsum(<d>)
        <x>.cumsum(<d>) / <x>.cumsum(<d>).abs().amax(<d>, keepdim=True).clamp(min=0.5)
        <x>.relu().cumsum(<d>) - <x>.cumsum(<d>)
        <i>.cumsum(<d>) - 1
        <x>.logcumsumexp(<d>)
        <x>.cummax(<d>).values
        <x>[:9].cumprod(0).sum(<d>)
        <x>[..., :9].exp().cumprod(-1)
        <x>.cummax(<d>).indices
        <x>.cummin(<d>).values
        <x>.logcumsumexp(<d>).exp()
        <x>.cumsum(<d>).flip(<d>).cumsum(<d>)
        <x>.cumsum(0).cumsum(-1)
        <x>.masked_fill(<b>, -math.inf).logcumsumexp(<d>)
        <x>.transpose(0, -1).cumsum(<d>)
        <x>[..., ::2].cumsum(-1)
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
}
