"""Forms that move, select or write elements; `tensor_grammar` explains the brackets."""

from __future__ import annotations

FORMS = {
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
        <t>.reshape(<t>.shape[0], -1)
        <t>.view(-1, 2)
        <t>[:<t>.shape[0] // 2]
        <t>[-(<t>.shape[0] // 2):]
        <t>[..., <t>.shape[-1] // 2]
        <t>.split(<t>.shape[0] // 2 + 1)[0]
        <t>[:0]
        <t>[:1].expand(4, *<t>.shape[1:])
        <t>.unsqueeze(-1).expand(*<t>.shape, 3)
        <t>.expand(2, *<t>.shape).reshape(-1)
        <t>.unfold(<d>, 2, 1).flatten(-2)
        <t>.swapaxes(0, -1)
        <t>.as_strided((<t>.shape[0], 2), (0, 1))
        <t>.unfold(-1, 2, 1).sum(-1)
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
        F.pad(<x>, (0, 5 - <x>.shape[-1] % 5))
        <x>.new_full((<x>.shape[0], 2), <c>)
        torch.cat([<t>[:0], <t>])
        torch.cat([<b>, <b>], <d>)
        torch.cat([<i>, <x>], <d>)
        torch.stack([<x>, <t>], -1).sum(-1)
        torch.eye(<x>.shape[-1], device=DEVICE)
        torch.ones(<x>.shape[<d>], 1, device=DEVICE)
    """,
    "indexing": """
        <t>[<i>.long() % <same>.shape[0]]
        <t>[:, <i>.long() % <same>.shape[1]]
        <t>[<i>.flatten().long() % <same>.shape[0], <i>.flatten().long() % <same>.shape[1]]
        <t>[..., <i>.flatten().long() % <same>.shape[-1]]
        <t>[<i>.long() % <same>.shape[0] - <same>.shape[0]]
        <t>.index_select(<d>, <i>.flatten().long() % <same>.shape[<samed>])
        <x>.gather(<d>, <i>.long() % <same>.shape[<samed>])
        <x>.gather(-1, <i>.long() % <same>.shape[-1])
        <x>.gather(-1, <same>.argmax(-1, keepdim=True))
        torch.take_along_dim(<x>, <i>.long() % <same>.shape[-1], -1)
        <x>.scatter(-1, <i>.long() % <same>.shape[-1], <c>)
        <x>.scatter_add(-1, <i>.long() % <same>.shape[-1], <x>)
        <x>.scatter_add(0, <i>.long() % <same>.shape[0], <x>)
        <x>.index_add(0, <i>.flatten().long() % <same>.shape[0], <x>)
        <x>.index_add(-1, <i>.flatten().long() % <same>.shape[-1], <x>, alpha=0.5)
        <x>.index_put((<i>.long() % <same>.shape[0],), <x>, accumulate=True)
        <x>.index_put((<i>.flatten()[:1].long() % <same>.shape[0],), <x>[0])
        <x>.index_copy(0, torch.arange(<x>.shape[0], device=DEVICE).flip(0), <x>)
        <x>.index_fill(<d>, <i>.flatten().long() % <same>.shape[<samed>], <c>)
        F.embedding(<i>.long() % <x>.shape[0], <same>)
        F.embedding(<i>.long() % <x>.shape[0], <same>, padding_idx=0)
        F.embedding(<i>.long() % <x>.shape[0], <same>).sum(<d>)
        F.embedding_bag(<i>.long() % <x>.shape[0], <same>, mode='sum')
        torch.zeros_like(<x>).scatter_reduce(0, <i>.long() % <same>.shape[0], <x>, 'amax')
        torch.zeros_like(<x>).index_add(0, <i>.flatten().long() % <same>.shape[0], <x>)
        <x>.masked_fill(torch.arange(<x>.shape[-1], device=DEVICE) > 1, <c>)
        torch.searchsorted(<x>.sort(-1).values, <x>)
        <x>.sort(<d>).values
        <x>.topk(1, <d>).values
        <x>.take(<i>.long() % <same>.numel())
        torch.bucketize(<x>, torch.linspace(-1, 1, 5, device=DEVICE, dtype=<x>.dtype))
        <x>.scatter_reduce(<d>, <i>.long() % <same>.shape[<samed>], <x>, 'sum', include_self=<flag>)
        <x>.scatter_reduce(<d>, <i>.long() % <same>.shape[<samed>], <x>, 'prod', include_self=<flag>)
        <x>.scatter_reduce(<d>, <i>.long() % <same>.shape[<samed>], <x>, 'mean', include_self=<flag>)
        <x>.scatter_reduce(<d>, <i>.long() % <same>.shape[<samed>], <x>, 'amin', include_self=<flag>)
        <x>.scatter_reduce(<d>, <i>.long() % <same>.shape[<samed>], <x>, 'amax', include_self=<flag>)
        <x>.index_reduce(0, <i>.flatten().long() % <same>.shape[0], <x>, 'amax')
        <x>.index_put((<i>.long() % <same>.shape[0],), <x>[0], accumulate=True)
        <x>.index_put((<i>.long() % <same>.shape[0], <i>.long() % <same>.shape[1]), <x>, accumulate=True)
        <x>.index_put((<i>.long() % <same>.shape[0] - <same>.shape[0],), <x>.sum(), accumulate=True)
        <i>.index_put((<i>.long() % <same>.shape[0],), <i>, accumulate=True)
        <x>.index_put((<b>,), <x>.sum())
        <x>.masked_scatter(<b>.expand(<same>.shape), <same>)
        <x>.masked_fill(<b>, <x>.sum())
        <t>.masked_fill(<b>, <n>)
        <i>.scatter_add(0, <i>.long() % <same>.shape[0], <i>)
        <x>.put(<i>.flatten().long() % <same>.numel(), <x>.flatten(), accumulate=True)
        <t>[<b>]
        <t>[:, None, <i>.long() % <same>.shape[1]]
        <t>[<i>.long() % <same>.shape[0], ..., 0]
        <t>[..., torch.arange(<t>.shape[-1], device=DEVICE).flip(0)]
        <x>.gather(<d>, <x>.argsort(<d>))
        <x>.diagonal_scatter(<x>.diagonal() * 2)
        <x>.kthvalue(1, <d>).values
        <x>.unfold(-1, 2, 2).amax(-1)
    """,
    "complex": """
        torch.complex(<x>, <x>).conj().imag
        torch.complex(<x>, <x>).conj().imag * <x>
        torch.complex(<x>, <x>).conj().real
        torch.complex(<x>, <x>).conj().abs()
        torch.complex(<x>, <x>).angle()
        (torch.complex(<x>, <x>) * torch.complex(<x>, <x>).conj()).imag
        (torch.complex(<x>, <x>) * 2j + <c>).real
        (torch.complex(<x>, <x>).conj().sum(<d>) - <c>).imag
        torch.view_as_real(torch.complex(<x>, <x>).conj().resolve_conj())
        torch.view_as_real(torch.polar(<x>, <x>).conj() + 1)
        torch.complex(<x>, <x>).mT.conj().reshape(-1).imag
        torch.complex(<x>, <x>).conj().clone().imag.neg()
        torch.cat([torch.complex(<x>, <x>).conj().imag, <x>], <d>)
        torch.where(<b>, torch.complex(<x>, <x>).conj(), 1j).imag
        torch.fft.rfft(<x>).conj().abs()
        torch.fft.ifft(torch.fft.fft(<x>).conj()).real
        <x>.to(torch.complex64).conj().imag.contiguous()
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
        <x>[<i>.long() % <same>.shape[0]] = <c>
        <x>[:, 1:].mul_(<x>[:, :-1].clone())
        <x>.transpose(0, 1).add_(<x>)
        <x>.diagonal().fill_(<c>)
        <x>.select(<d>, 0).copy_(<x>.select(<d>, -1))
        <x>.index_add_(0, <i>.flatten().long() % <same>.shape[0], <x>)
        <x>.scatter_(-1, <i>.long() % <same>.shape[-1], <c>)
        <x>.cumsum_(<d>)
        <i>.add_(<n>)
        <i>[..., 0] = <n>
        <b>.logical_not_()
        <x>[<i>.long() % <same>.shape[0]] += <c>
        <x>.index_put_((<i>.long() % <same>.shape[0],), <x>, accumulate=True)
        <x>.index_put_((<i>.flatten().long() % <same>.shape[0],), <x>[0], accumulate=True)
        <x>.scatter_reduce_(0, <i>.long() % <same>.shape[0], <x>, 'amax', include_self=<flag>)
        <x>.scatter_add_(-1, <i>.long() % <same>.shape[-1], <x>)
        <x>.masked_scatter_(<b>.expand(<same>.shape), <same>)
        <x>[:9].cumprod_(0)
        <x>.view(-1)[::2].mul_(<c>)
        <x>.flatten()[0] = <c>
        <x>[..., ::2].cumsum_(-1)
        <x>.narrow(<d>, 0, 1).sub_(<x>.mean())
        <x>.T[0].zero_()
        <x>.unsqueeze(0).add_(<x>)
        <x>.reshape(-1)[1:].copy_(<x>.reshape(-1)[:-1].clone())
        <x>[1:][0].fill_(<c>)
        <x>.chunk(2, <d>)[0].copy_(<x>.chunk(2, <d>)[1])
        <x>.diagonal().add_(<x>.sum())
        <t>.swapaxes(0, 1)[..., 0] = <n>
        <t>[<b>] = <n>
        <x>.div_(<x>.abs() + 0.5)
        <x>.lerp_(<x>, 0.5)
        <x>.clone()[..., 0] = <x>.sum(-1)
        <x>.where(<b>, <x>).mul_(<c>)
        <i>.floor_divide_(<p>)
        <i>.remainder_(-3)
        <i>.mul_(<b>)
        <i>.scatter_(0, <i>.long() % <same>.shape[0], <n>)
        <i>.T.add_(<n>)
        <b>.logical_or_(<b>)
        <b>[0] = True
        <b>.copy_(<x> > <c>)
    """,
}
