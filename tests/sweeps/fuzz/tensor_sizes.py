"""Forms whose arguments are sizes, or computed from sizes: symbolic numbers in a second compile.

`tensor_grammar` explains the brackets.  A result has few more elements than its tensors.
"""

from __future__ import annotations

FORMS = {
    "sizes": """
        <x> + <s>
        <x> * <f>
        <i> * <s>
        <s> - <x>
        <s> - <i>
        <f> / (<x>.abs() + 1)
        <x> / <s>
        <i> // <s>
        <i> % <s>
        <x> ** <f>
        <x> % <s>
        <s> ** <x>.clamp(-1, 1)
        torch.add(<x>, <x>, alpha=<s>)
        torch.add(<x>, <x>, alpha=<f>)
        torch.sub(<i>, <i>, alpha=<s>)
        torch.rsub(<x>, <x>, alpha=<f>)
        torch.addcmul(<x>, <x>, <x>, value=<f>)
        torch.addcdiv(<x>, <x>, <x>.abs() + 1, value=<s>)
        torch.addmm(<x>[:, 0], <same>, <same>.mT, beta=<f>, alpha=<s>)
        torch.baddbmm(<x>[:, :1], <same>, <same>.mT[..., :3], beta=<s>, alpha=<f>)
        torch.addmv(<x>[:, 0], <same>, <same>[0], alpha=<f>)
        torch.addmm(<x>[:, 0], <same>, <same>.mT).relu() * <f>
        torch.lerp(<x>, <x>, <f>)
        <x>.clamp(-<f>, <s>)
        <x>.clamp(max=<f>)
        <i>.clamp(0, <s>)
        F.hardtanh(<x>, -<f>, <s>)
        F.leaky_relu(<x>, <f>)
        F.elu(<x>, <f>)
        F.softplus(<x>, <f>, <s>)
        F.threshold(<x>, <f>, <s>)
        F.celu(<x>, <f>)
        F.hardshrink(<x>, <f>)
        F.dropout(<x>, <f> % 1, False)
        <x>.masked_fill(<b>, <s>)
        <x>.masked_fill(<b>, <f>)
        torch.where(<x> > 0, <x>, <s>)
        torch.where(<b>, <f>, <x>)
        torch.where(<x> > <f>, <x>, <s>)
        <x>.eq(<s>)
        <i>.ge(<s>)
        <i>.bitwise_and(<s>)
        <x>.nan_to_num(<f>, <s>, 0)
        <x>.div(<s>, rounding_mode='floor')
        <x>.fmod(<s>)
        <i>.float_power(<f>)
        <x>.sum(<d>) / <same>.shape[<samed>]
        <x>.sum(<d>, keepdim=<q>)
        <x>.mean(-1, keepdim=<q>)
        <x>.var(<d>, correction=<s>)
        <x>.std(-1, correction=<f>)
        <x>.norm(<f> + 1, <d>)
        <x>.norm(<s>, -1)
        torch.linalg.vector_norm(<x>, <s>)
        <x>.renorm(2, 0, <f> + 1)
        F.softmax(<x> * <f>, -1)
        F.softmax(<x> / math.sqrt(<same>.shape[-1]), <d>)
        F.normalize(<x>, <f> + 1)
        F.layer_norm(<x>, <x>.shape[-1:], eps=<f> + 1e-3)
        F.layer_norm(<x>, (<same>.shape[-1],))
        F.rms_norm(<x>, <x>.shape[-1:], eps=<f>)
        F.group_norm(<x>, <s>)
        F.group_norm(<x>, <same>.shape[1])
        F.batch_norm(<x>, None, None, training=True, momentum=<f>, eps=<f> + 1e-3)
        F.instance_norm(<x>, eps=<f> + 1e-3)
        F.local_response_norm(<x>, <s>, <f>)
        F.smooth_l1_loss(<x>, <x>, beta=<f> + 0.1)
        F.huber_loss(<x>, <x>, delta=<f> + 0.1)
        F.margin_ranking_loss(<x>, <x>, <x>.sign(), margin=<f>)
        F.cross_entropy(<x>, <i>.long() % <same>.shape[1], label_smoothing=<f> % 1)
        F.cross_entropy(<x>, <i>.long() % <same>.shape[1], ignore_index=<s>)
        F.nll_loss(<x>, <i>.long() % <same>.shape[1], ignore_index=<s>)
        F.gaussian_nll_loss(<x>, <x>, <x>.abs() + 1, eps=<f> + 1e-3)
        F.poisson_nll_loss(<x>, <x>.abs(), full=<q>)
        <x>.roll(<s>, <d>)
        <x>.roll((<s>, -<s>), (0, 1))
        <t>.roll(<s>)
        <t>.narrow(<d>, 0, <s>)
        <t>.narrow(<d>, <s>, 1)
        <t>.select(<d>, <s>)
        <t>[<s>:]
        <t>[-<s>:]
        <t>[:<s>]
        <t>[..., :<s>]
        <t>[::<s>]
        <t>[..., <s>]
        <t>[..., 1:<s>:2]
        <t>.split(<s>, <d>)[0]
        <t>.split(<s>, <d>)[-1]
        <t>.split([1, <same>.shape[0] - 1])[1]
        <t>.chunk(<s>, <d>)[0]
        <t>.tensor_split(<s>, <d>)[0]
        <t>.unfold(<d>, <s>, 1)
        <t>.unfold(-1, 2, <s>)
        <t>.diagonal(<s>)
        <x>.tril(<s>)
        <x>.triu(-<s>)
        <x>.diag_embed(<s> % 4)
        torch.tril(torch.ones(min(<s>, 99), min(<s>, 99), device=DEVICE), <s>)
        <t>.view(<s>, -1)
        <t>.reshape(-1, <s>)
        <t>.reshape(<same>.shape[0], -1, <s>)
        <t>.view(<same>.shape[::-1])
        <t>.unflatten(<d>, (<s>, -1))
        <t>.unflatten(<d>, (-1, <s>))
        <t>.flatten(0, 1).view(<same>.shape)
        <t>.expand(<s> % 4, *<same>.shape)
        <t>.unsqueeze(-1).expand(*<same>.shape, <s> % 5)
        <t>[:1].expand(<s>, *<same>.shape[1:])
        <t>.repeat(<s> % 4, *[1] * <same>.dim())
        <t>.tile(<s> % 4)
        <t>.repeat_interleave(<s> % 4, <d>)
        <t>.as_strided((<same>.shape[0], 2), (<same>.stride(0), 0))
        <t>.movedim(0, <same>.dim() - 1)
        torch.cat([<x>[:<s>], <x>], 0)
        torch.stack([<x>] * (<s> % 4 + 1), <d>)
        F.pad(<x>, (<s> % 9, 0))
        F.pad(<x>, (0, <s> % 9), value=<f>)
        F.pad(<x>, (-(<x>.shape[-1] // 2), 1))
        F.pad(<x>, (<s> % 3, <s> % 3), mode='reflect')
        F.pad(<x>, (<s>, <s>), mode='replicate')
        F.pad(<x>, (<s>, 0), mode='circular')
        F.pad(<x>, (0, -<same>.shape[-1] % 8))
        <x>.new_zeros(<s>, 3)
        <x>.new_full((<s>,), <f>)
        <x>.new_ones(<same>.shape[-1], <s> % 5)
        torch.full((<s>,), <s>, device=DEVICE)
        torch.full((2, <s>), <f>, device=DEVICE)
        torch.full_like(<x>, <f>)
        torch.full_like(<i>, <s>)
        torch.zeros(<s>, device=DEVICE)
        torch.arange(<s>, device=DEVICE)
        torch.arange(<s>, 2 * <x>.shape[0], <s>, device=DEVICE) * <same>.sum()
        torch.arange(0, <s>, <s>, device=DEVICE)
        torch.arange(0, <f> * 9, 0.5, device=DEVICE)
        torch.linspace(0, <f>, <s>, device=DEVICE)
        torch.linspace(<s>, 1, 7, device=DEVICE)
        torch.eye(min(<s>, 99), device=DEVICE)
        torch.scalar_tensor(<s>, device=DEVICE)
        torch.tensor(<f>, device=DEVICE) * <x>
        torch.tensor([1, <s>], device=DEVICE)
        F.one_hot(<i>.long() % <same>.shape[0], <same>.shape[0])
        F.one_hot(<i>.long() % 5, 5 + <s> % 4)
        torch.tril_indices(min(<s>, 99), min(<s>, 99), device=DEVICE)
        F.interpolate(<x>, size=<s>)
        F.interpolate(<x>, size=(<s> % 40, <s> % 40))
        F.interpolate(<x>, size=(<s> % 40, 7), mode='bilinear', align_corners=<q>)
        F.interpolate(<x>, scale_factor=<f>)
        F.interpolate(<x>, scale_factor=<f>, mode='bilinear')
        F.interpolate(<x>, size=<s> % 40, mode='bicubic')
        F.pixel_shuffle(<x>, <s>)
        F.pixel_unshuffle(<x>, <s>)
        F.channel_shuffle(<x>, <s>)
        F.channel_shuffle(<x>, <same>.shape[1])
        F.max_pool1d(<x>, <s>)
        F.max_pool1d(<x>, 2, <s>)
        F.max_pool2d(<x>, <s>)
        F.max_pool2d(<x>, (2, <s>), 1, (1, <s> // 2))
        F.max_pool2d(<x>, 3, <s>, 1)
        F.max_pool2d(<x>, <x>.shape[-2:])
        F.avg_pool1d(<x>, <s>)
        F.avg_pool2d(<x>, <s>)
        F.avg_pool2d(<x>, 3, <s>, 1)
        F.avg_pool2d(<x>, <x>.shape[-2:])
        F.avg_pool2d(<x>, 2, 1, divisor_override=<s>)
        F.adaptive_avg_pool2d(<x>, <s> % 9)
        F.adaptive_avg_pool1d(<x>, <s>)
        F.adaptive_max_pool2d(<x>, (<s> % 9, 2))
        F.lp_pool1d(<x>, <f> + 1, <s>)
        F.unfold(<x>, <s>)
        F.unfold(<x>, 2, padding=<s> % 4)
        F.fold(F.unfold(<x>, 2), <x>.shape[-2:], 2)
        F.conv1d(<x>, <x>.new_ones(<same>.shape[-2], 1, 3) * 0.1, padding=1, groups=<same>.shape[-2])
        F.conv1d(<x>, <x>.new_ones(2, <same>.shape[-2], 3) * 0.1, padding=<s>)
        F.conv1d(<x>, <x>.new_ones(2, <same>.shape[-2], 2) * <f>, <x>.new_ones(2), stride=<s>)
        F.conv2d(<x>, <x>.new_ones(<same>.shape[-3], 1, 3, 3) * 0.1, padding=1, groups=<same>.shape[-3])
        F.conv2d(<x>, <x>[0, :, None, :2, :2], <x>[0, :, 0, 0], groups=<same>.shape[-3])
        F.conv2d(<x>, <x>.new_ones(4, <same>.shape[-3], 3, 3) * 0.1, <x>.new_ones(4), padding=<s> % 4)
        F.conv2d(<x>, <x>.new_ones(3, <same>.shape[-3], 1, 1) * <f>, stride=<s>)
        F.conv2d(<x>, <x>.new_ones(2, <same>.shape[-3], 2, 2) * 0.1, dilation=<s>)
        F.conv2d(<x>, <x>.new_ones(4, <same>.shape[-3] // <s>, 3, 3) * 0.1, padding=1, groups=<s>)
        F.conv_transpose2d(<x>, <x>.new_ones(<same>.shape[-3], 2, 3, 3) * 0.1, padding=<s> % 3)
        F.conv_transpose1d(<x>, <x>.new_ones(<same>.shape[-2], 1, 3) * 0.1, groups=<same>.shape[-2])
        F.embedding(<i>.long() % <x>.shape[0], <same>, padding_idx=<s>)
        F.embedding_bag(<i>.long() % <x>.shape[0], <same>, mode='sum', padding_idx=<s>)
        <x>.index_select(<d>, torch.arange(0, <same>.shape[<samed>], 2, device=DEVICE))
        <x>.index_fill(<d>, <i>.flatten().long() % <same>.shape[<samed>], <s>)
        <x>.index_add(0, <i>.flatten().long() % <same>.shape[0], <x>, alpha=<f>)
        <x>.scatter(-1, <i>.long() % <same>.shape[-1], <f>)
        <x>.gather(<d>, (<i>.long() + <s>) % <same>.shape[<samed>])
        <x>[(<i>.long() + <s>) % <same>.shape[0]]
        <x>.take((<i>.long() * <s>) % <same>.numel())
        <x>.topk(<s>, <d>).values
        <x>.topk(min(<s>, <same>.shape[-1])).values
        <x>.kthvalue(<s>, <d>).values
        <x>.cumsum(<d>)[:<s>]
        <x>.diff(<s> % 3, <d>)
        <x>.quantile(<f> % 1)
        torch.histc(<x>, <s>)
        torch.bincount(<i>.flatten().abs().long(), minlength=<s>)
        torch.bucketize(<x>, torch.arange(<s>, device=DEVICE))
        torch.slice_scatter(<x>, <x>[<s>:], 0, <s>)
        torch.select_scatter(<x>, <x>[0], 0, <s>)
        torch.diagonal_scatter(<x>, <x>.diagonal(<s>) * 2, <s>)
        torch.tensordot(<x>, <x>, <x>.dim() - 1)
        torch.fft.rfft(<x>, <s>).abs()
        torch.vander(<x>, <s> % 5)
        torch.cdist(<x>, <x>, <f> + 1)
        F.scaled_dot_product_attention(<x>, <x>, <x>, scale=<f>)
        F.scaled_dot_product_attention(<x>, <x>, <x>, is_causal=<q>)
        (<x> @ <same>.mT * <f>).softmax(-1)
        <x> if <q> else <x> * 2
    """,
    "sized writes": """
        <x>[<s>] = <f>
        <x>[<s>:] = <s>
        <x>[..., :<s>] += <f>
        <x>[..., ::<s>] *= <s>
        <x>.mul_(<f>)
        <i>.add_(<s>)
        <x>.add_(<x>, alpha=<s>)
        <x>.fill_(<f>)
        <x>.clamp_(-<f>, <s>)
        <x>.narrow(<d>, 0, <s>).zero_()
        <x>.select(<d>, <s>).mul_(<f>)
        <x>.masked_fill_(<b>, <s>)
        <x>.index_fill_(<d>, <i>.flatten().long() % <same>.shape[<samed>], <f>)
        <x>.addcmul_(<x>, <x>, value=<f>)
        <x>.lerp_(<x>, <f>)
        <x>.diagonal(<s>).fill_(<f>)
        <x>.view(<s>, -1)[0].add_(<f>)
        <i>[..., <s>] = <s>
    """,
}
