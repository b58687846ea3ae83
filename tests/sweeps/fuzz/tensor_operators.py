"""Forms of operators with windows, losses, orders, spectra, states and random numbers; `tensor_grammar` explains the
brackets."""

from __future__ import annotations

FORMS = {
    "windows": """
        F.max_pool1d(<x>, 2)
        F.max_pool1d(<x>, 3, 1, 1)
        F.max_pool1d(<x>, 2, 3, ceil_mode=True)
        F.max_pool1d(<x>, 3, 2, 1, dilation=2)
        F.max_pool2d(<x>, (2, 3), ceil_mode=True)
        F.max_pool2d(<x>, 3, 2, 1, ceil_mode=True)
        F.max_pool2d(<x>, 2, 1, dilation=2)
        F.max_pool2d(<x>, (3, 2), (1, 2), (1, 0), (1, 2))
        F.max_pool2d(<x>, 2, return_indices=True)[1]
        F.max_pool2d(<x>, 3, 1, 1, return_indices=True)[1]
        F.max_pool3d(<x>, 2)
        F.max_pool3d(<x>, 3, 2, 1)
        F.avg_pool1d(<x>, 3, 2, 1)
        F.avg_pool1d(<x>, 3, 2, 1, ceil_mode=True)
        F.avg_pool1d(<x>, 2, count_include_pad=False)
        F.avg_pool2d(<x>, (3, 1), (1, 2), (1, 0))
        F.avg_pool2d(<x>, 3, 2, 1, count_include_pad=False)
        F.avg_pool2d(<x>, 3, 2, 1, ceil_mode=True)
        F.avg_pool2d(<x>, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        F.avg_pool2d(<x>, 2, 1, divisor_override=3)
        F.avg_pool3d(<x>, 2)
        F.avg_pool3d(<x>, 3, 2, 1, count_include_pad=False)
        F.lp_pool2d(<x>, 2.0, 2)
        F.adaptive_avg_pool1d(<x>, 3)
        F.adaptive_avg_pool2d(<x>, (None, 2))
        F.adaptive_avg_pool3d(<x>, 2)
        F.adaptive_max_pool1d(<x>, 2)
        F.adaptive_max_pool2d(<x>, (2, 3))
        F.adaptive_max_pool2d(<x>, 1, return_indices=True)[1]
        F.max_unpool2d(*F.max_pool2d(<x>, 2, return_indices=True), 2, output_size=<same>.shape[-2:])
        F.conv1d(<x>, <x>.new_ones(2, <same>.shape[-2], 3) * 0.1, padding=1)
        F.conv1d(<x>, <x>[:1, :, :1])
        F.conv2d(<x>, <x>.new_ones(2, <same>.shape[-3], 3, 3) * 0.1, padding='same')
        F.conv2d(<x>, <x>.new_ones(2, <same>.shape[-3], 2, 2) * 0.1, <x>.new_ones(2), stride=2).relu()
        F.conv2d(<x>, <x>.new_ones(<same>.shape[-3], 1, 3, 3) * 0.1, padding=1, groups=<same>.shape[-3])
        F.conv2d(<x>, <x>.new_ones(2, <same>.shape[-3], 2, 2) * 0.1, dilation=2)
        F.conv_transpose2d(<x>, <x>.new_ones(<same>.shape[-3], 2, 3, 3) * 0.1, stride=2, padding=1, output_padding=1)
        F.conv_transpose1d(<x>, <x>.new_ones(<same>.shape[-2], 2, 2) * 0.1)
        F.interpolate(<x>, scale_factor=1.5)
        F.interpolate(<x>, scale_factor=2, mode='nearest-exact')
        F.interpolate(<x>, size=(5, 3))
        F.interpolate(<x>, size=7)
        F.interpolate(<x>, size=(4, 7), mode='bilinear')
        F.interpolate(<x>, size=(4, 7), mode='bilinear', align_corners=True)
        F.interpolate(<x>, scale_factor=0.6, mode='bilinear', antialias=True)
        F.interpolate(<x>, scale_factor=1.7, mode='bicubic')
        F.interpolate(<x>, size=(5, 5), mode='bicubic', align_corners=True)
        F.interpolate(<x>, scale_factor=(2.0, 0.5), mode='bilinear', recompute_scale_factor=True)
        F.interpolate(<x>, size=9, mode='linear')
        F.interpolate(<x>, scale_factor=2, mode='linear', align_corners=True)
        F.interpolate(<x>, size=(3, 4), mode='area')
        F.interpolate(<x>, scale_factor=2, mode='trilinear')
        F.pad(<x>, (2, 1, 1, 2), mode='reflect')
        F.pad(<x>, (2, 1, 1, 2), mode='replicate')
        F.pad(<x>, (1, 2, 0, 1), mode='circular')
        F.pad(<x>, (-1, -1, 2, 0), value=-math.inf)
        F.pad(<t>, (0, 1, -1, 1))
        F.pad(<x>, (1, 1, 1, 1, 1, 1), mode='replicate')
        F.pixel_unshuffle(<x>, 2)
        F.fold(F.unfold(<x>, 2, padding=1), <x>.shape[-2:], 2, padding=1)
        F.unfold(<x>, (2, 3), dilation=(1, 2), stride=(2, 1))
        F.grid_sample(<x>, <same>[:, 0, :, :2, None].expand(-1, -1, -1, 2))
        F.affine_grid(<x>.new_ones(2, 2, 3) * 0.5, (2, 1, 3, 4))
        F.local_response_norm(<x>, 3)
    """,
    "losses": """
        F.mse_loss(<x>, <x>, reduction=<reduction>)
        F.l1_loss(<x>, <x>, reduction=<reduction>)
        F.smooth_l1_loss(<x>, <x>, reduction=<reduction>, beta=0.3)
        F.huber_loss(<x>, <x>, reduction=<reduction>, delta=0.7)
        F.kl_div(<x>, <x>, reduction=<reduction>)
        F.kl_div(<x>, <x>, reduction=<reduction>, log_target=True)
        F.binary_cross_entropy(<x>.sigmoid(), <x>.sigmoid(), reduction=<reduction>)
        F.binary_cross_entropy(<x>.sigmoid(), <x>.sigmoid(), <x>.abs())
        F.binary_cross_entropy_with_logits(<x>, <x>.sigmoid(), <x>.abs(), reduction=<reduction>)
        F.binary_cross_entropy_with_logits(<x>, <x>.sigmoid(), pos_weight=<x>.abs(), reduction=<reduction>)
        F.nll_loss(<x>.log_softmax(1), <same>.flip(1).argmax(1), reduction=<reduction>, ignore_index=1)
        F.nll_loss(<x>, <same>.flip(1).argmax(1), <same>.new_ones(<same>.shape[1]) * 0.3)
        F.cross_entropy(<x>, <same>.flip(1).argmax(1), reduction=<reduction>, label_smoothing=0.2)
        F.cross_entropy(<x>, <same>.flip(1).argmax(1), ignore_index=1, label_smoothing=0.2)
        F.cross_entropy(<x>, <same>.flip(1).argmax(1), <same>.new_ones(<same>.shape[1]) * 0.3)
        F.cross_entropy(<x>, <x>.softmax(1), reduction=<reduction>, label_smoothing=0.1)
        F.cross_entropy(<x>.reshape(-1), <x>.numel() // 2 + 0 * <i>.long().sum())
        F.poisson_nll_loss(<x>, <x>.abs(), full=True, reduction=<reduction>)
        F.poisson_nll_loss(<x>.abs(), <x>.abs(), log_input=False, reduction=<reduction>)
        F.gaussian_nll_loss(<x>, <x>, <x>.abs(), full=True, reduction=<reduction>)
        F.hinge_embedding_loss(<x>, <x>.sign(), reduction=<reduction>)
        F.margin_ranking_loss(<x>, <x>, <x>.sign(), margin=0.1, reduction=<reduction>)
        F.soft_margin_loss(<x>, <x>.sign(), reduction=<reduction>)
        F.multilabel_soft_margin_loss(<x>, <x>.sigmoid(), reduction=<reduction>)
        F.multi_margin_loss(<x>, <same>.flip(1).argmax(1), reduction=<reduction>)
        F.triplet_margin_loss(<x>, <x>, <x>, swap=True, reduction=<reduction>)
        F.cosine_embedding_loss(<x>, <x>, <x>[..., 0].sign(), 0.2, reduction=<reduction>)
        F.pairwise_distance(<x>, <x>, p=1.0, keepdim=True)
        F.pdist(<x>)
        torch.cdist(<x>, <x>, p=1.0)
    """,
    "ordered": """
        <t>.sort(dim=<d>, descending=<flag>, stable=True).indices
        <x>.sort(dim=<d>, descending=<flag>, stable=True).values
        <t>.argsort(dim=<d>, stable=True)
        <t>.msort()
        <x>.topk(2, <d>, largest=<flag>).values
        <x>.topk(1, <d>, sorted=False).indices
        <x>.quantile(0.3, <d>)
        <x>.quantile(torch.tensor([0.1, 0.9], dtype=<x>.dtype), <d>, keepdim=True)
        <x>.nanquantile(0.5, <d>, interpolation='lower')
        <x>.nanmedian(<d>, keepdim=True).values
        <i>.median(<d>).values
        <i>.mode(<d>).values
        <i>.unique()
        <i>.unique(return_counts=True)[1]
        <i>.flatten().unique_consecutive(return_inverse=True)[1]
        <x>.histc(5, -2, 2)
        torch.bincount(<x>.flatten().argsort() // 2, <same>.flatten())
        <t>.nonzero()
        torch.nonzero(<b>, as_tuple=True)[0]
        <b>.argmax(-1) if <b>.dtype is not torch.bool else <b>.int().argmax(-1)
        <x>.cummin(<d>).indices
        <i>.cummin(<d>).values
        <i>.cummax(<d>).indices
        <t>.cumsum(<d>, dtype=torch.float32)
        <t>[..., :7].cumprod(<d>, dtype=torch.float64)
        <x>.diff(n=2, dim=<d>)
        <t>.diff(prepend=<same>[..., :1])
        torch.cumulative_trapezoid(<x>, dim=<d>)
        torch.trapezoid(<x>, <x>)
        torch.gradient(<x>)[0]
        torch.searchsorted(<x>.sort(-1).values, <x>, right=True)
        torch.bucketize(<i>, torch.arange(-3, 8, 2, device=DEVICE), right=<flag>)
        torch.vander(<x>[..., 0], 3)
        torch.combinations(<x>.flatten()[:5])
        torch.cartesian_prod(<x>.flatten()[:4], <x>.flatten()[:3])
        torch.block_diag(<x>, <x>)
        torch.tril_indices(4, 5, <n>)
        torch.triu_indices(3, 4, <n>)[1]
        torch.logspace(-1, 1, 5)
        <x>.aminmax(dim=<d>)[0]
        <t>.amax(<d>)
        <t>.all()
        torch.logcumsumexp(<x>, <d>).logsumexp(<d>)
        <x>.max(<d>, keepdim=True)[1]
        <t>.argmin(<d>)
        <t>.prod()
        <x>.renorm(1, -1, 0.5)
        <x>.cov()
        <x>.corrcoef()
        torch.cat([<x>, <x>], <d>, out=torch.empty(0, dtype=<x>.dtype))
        torch.index_select(<x>, 0, <i>.flatten().long() % <same>.shape[0], out=torch.empty(0, dtype=<same>.dtype))
    """,
    "spectra": """
        torch.fft.fft(<z>)
        torch.fft.fft(<x>, n=6, dim=<d>)
        torch.fft.ifft(<z>, norm='ortho')
        torch.fft.rfft(<x>, norm='forward')
        torch.fft.irfft(<z>)
        torch.fft.irfft(torch.fft.rfft(<x>), n=<x>.shape[-1])
        torch.fft.fft2(<x>).abs()
        torch.fft.fftn(<z>)
        torch.fft.hfft(<z>)
        torch.fft.fftshift(<t>)
        torch.fft.ifftshift(<t>, <d>)
        torch.fft.fftfreq(7, 0.1)
        torch.stft(<x>.flatten(), 8, return_complex=True, window=torch.ones(8, dtype=<x>.dtype))
        torch.einsum('i...,i...->...', <x>, <x>)
        torch.einsum('...i,...i', <x>, <x>)
        torch.einsum('ij,jk', <x>, <same>.mT)
        torch.einsum('ij->ji', <t>)
        torch.einsum('ii->i', <t> @ <same>.mT)
        torch.einsum('abc,cd->adb', <x>, <same>[0].mT)
        torch.einsum('ab,cb->ac', <z>, <same>)
        torch.bmm(<x>, <same>.mT)
        torch.baddbmm(<x>[..., :1], <same>, <same>.mT, beta=0.5, alpha=2)
        torch.matmul(<x>, <x>[..., 0, :])
        <z> @ <same>.mH
        torch.addmv(<x>[:, 0], <same>, <same>[0], beta=0)
        torch.addmm(<x>[:, :1], <same>, <same>.mT, beta=0.3, alpha=-1)
        torch.addr(<x>, <same>[:, 0], <same>[0])
        torch.addbmm(<x>[0, :, :1], <same>, <same>.mT)
        torch.inner(<x>, <x>)
        torch.vdot(<x>.flatten(), <x>.flatten())
        torch.cross(<x>[..., :3], <x>[..., :3])
        torch.linalg.cross(<x>, <x>, dim=<d>)
        torch.linalg.matrix_norm(<x>, 1)
        torch.linalg.matrix_norm(<x>)
        torch.linalg.multi_dot([<x>, <same>.mT, <same>])
        torch.linalg.matrix_power(<x> @ <x>.mT / 10, 3)
        torch.trace(<t>)
        <i> @ <i>
    """,
    "complexes": """
        torch.complex(<x>, <x>)
        torch.polar(<x>.abs(), <x>)
        <z> + <z>
        <z> - <x>
        <z> * <z>
        <z> * <x>
        <z> * 2j
        1j - <z>
        <z> / (<z> + 3)
        <z> + <c>
        <n> * <z>
        -<z>
        <z>.conj()
        <z>.conj() * <z>
        <z>.real
        <z>.imag
        <z>.abs()
        <z>.angle()
        <z>.sgn()
        <z>.exp()
        (<z> + 4).log()
        <z>.sqrt()
        <z>.sin()
        <z>.tanh()
        <z>.square()
        <z> ** 2
        <z> ** 3
        <z>.reciprocal()
        <z>.sigmoid()
        <z>.sum(<d>)
        <z>.mean()
        <z>.prod(<d>)
        <z>.cumsum(<d>)
        <z>.norm()
        <z>.var(<d>)
        <z> == <z>
        <z> != <x>
        torch.where(<b>, <z>, <z>)
        <z>.masked_fill(<b>, 1j)
        torch.view_as_real(<z>)
        torch.view_as_complex(torch.stack([<x>, <x>], -1))
        torch.cat([<z>, <z>], <d>)
        torch.cat([<z>, <x>], <d>)
        <z>.isfinite()
        torch.is_complex(<z>) * <x>
        <z>.to(torch.complex128)
        <z>.to(torch.complex64)
        <x> * 1j
        <x>.to(torch.complex64)
        <i> * 2j
        torch.addcmul(<z>, <z>, <z>, value=0.5)
        torch.lerp(<z>, <z>, 0.5)
        <z>.real + <z>.imag
        <z>.mH
        <z>.T.conj().contiguous()
        F.pad(<z>, (1, 2), value=1.0)
        torch.isclose(<z>, <z>)
    """,
    "layers": """
        F.batch_norm(<x>, <x>.new_zeros(<same>.shape[1]), <same>.new_ones(<same>.shape[1]))
        F.batch_norm(<x>, <x>.new_ones(<same>.shape[1]), <same>.new_ones(<same>.shape[1]), training=True, momentum=0.3)
        F.instance_norm(<x>, None, None, <x>.new_ones(<same>.shape[1]), <same>.new_ones(<same>.shape[1]))
        F.group_norm(<x>, 1, <x>.new_ones(<same>.shape[1]) * 2, <same>.new_ones(<same>.shape[1]))
        F.group_norm(<x>, <x>.shape[1])
        F.layer_norm(<x>, <x>.shape[-1:], <x>[..., 0, :].reshape(-1)[:<x>.shape[-1]])
        F.layer_norm(<x>, <x>.shape[1:])
        F.layer_norm(<x>, <x>.shape)
        F.rms_norm(<x>, <x>.shape[-2:])
        F.scaled_dot_product_attention(<x>, <x>, <x>, is_causal=True)
        F.scaled_dot_product_attention(<x>, <x>, <x>, attn_mask=<b>)
        F.scaled_dot_product_attention(<x>, <x>, <x>, attn_mask=<x> @ <x>.mT)
        F.scaled_dot_product_attention(<x>, <same>, <same>, scale=0.3)
        F.scaled_dot_product_attention(<x>, <same>, <same>, is_causal=True, scale=1.0)
        F.scaled_dot_product_attention(<x>, <same>, <same>, attn_mask=(<same> @ <same>.mT).tril() > 0)
        F.embedding_bag(<i>.long() % <x>.shape[0], <same>, mode='mean')
        F.embedding_bag(<i>.long() % <x>.shape[0], <same>, mode='max')
        F.embedding_bag(<i>.flatten().long() % <x>.shape[0], <same>, torch.tensor([0, 1, 1], device=DEVICE), mode='sum')
        F.embedding_bag(<i>.flatten().long() % <x>.shape[0], <same>, torch.tensor([0, 1], device=DEVICE), padding_idx=0)
        F.embedding(<i>.long() % <x>.shape[0], <same>, scale_grad_by_freq=True)
        F.embedding(<i>.long() % <x>.shape[0], <same>, padding_idx=-1) + 1
        F.prelu(<x>, <x>.new_ones(1) * 0.2)
        F.prelu(<x>, <x>.new_ones(<same>.shape[1]) * 0.2)
        F.glu(<x>, -1).softmax(-1)
        F.hardtanh(<x>, -0.5, 0.25)
        F.gumbel_softmax(<x>, hard=<flag>)
        F.softmax(<x>, <d>, dtype=torch.float64)
        F.log_softmax(<x>, <d>, dtype=torch.float32)
        torch.nn.functional.normalize(<x>, p=math.inf, dim=<d>)
        F.one_hot(<i>.long() % 4)
        torch.clip(<x>, <x>[..., :1], None)
        torch.utils.checkpoint.checkpoint(lambda x: x.sin().cos() * x, <x>, use_reentrant=False)
        torch._foreach_add([<x>, <x>], [<x>, <x>], alpha=2)[1]
        torch._foreach_mul([<x>, <x>], <c>)[0]
        torch._foreach_norm([<x>, <x>])[0]
        torch._foreach_lerp([<x>, <x>], [<x>, <x>], 0.3)[1]
        torch._foreach_addcdiv([<x>], [<x>], [<x>.abs() + 1], 0.5)[0]
    """,
    "random": """
        F.dropout(<x>, 0.5)
        F.dropout(<x>, 0.0) + F.dropout(<x>, 1.0)
        F.dropout(<x>, 0.5, training=False)
        F.dropout1d(<x>, 0.5)
        F.dropout2d(<x>, 0.5)
        F.alpha_dropout(<x>, 0.3, training=True)
        F.feature_alpha_dropout(<x>, 0.3, training=True)
        F.rrelu(<x>, training=<flag>)
        torch.rand_like(<x>)
        torch.randn_like(<x>) * <x>
        torch.rand(<x>.shape, device=DEVICE) < 0.3
        torch.randn(3, 4, device=DEVICE).sum(-1)
        torch.randint(0, 9, <x>.shape, device=DEVICE)
        torch.randint_like(<x>, 5)
        torch.randperm(<x>.shape[<d>], device=DEVICE)
        <x>[torch.randperm(<x>.shape[0], device=DEVICE)]
        torch.bernoulli(<x>.sigmoid())
        torch.multinomial(<x>.softmax(-1), 1)
        torch.multinomial(<x>.softmax(-1), 3, replacement=True)
        torch.normal(<x>, <x>.abs())
        torch.normal(0.0, <x>.abs() + 0.1)
        torch.poisson(<x>.abs())
        torch.empty_like(<x>).uniform_(-1, 1)
        torch.empty_like(<x>).normal_()
        torch.empty_like(<x>).exponential_() + <x>
        torch.empty(<x>.shape[-1], device=DEVICE).log_normal_()
        torch.empty_like(<x>).geometric_(0.4)
        torch.empty_like(<x>).cauchy_().clamp(-1, 1)
        torch.empty_like(<x>).bernoulli_(0.4)
        torch.empty_like(<i>).random_(5)
        torch.empty_like(<i>).random_(1, 5)
        torch.rand(<x>.shape, device=DEVICE, dtype=torch.float64) - <x>
        <x> + torch.randn((), device=DEVICE)
    """,
    "writes": """
        torch.add(<x>, <x>, out=<x>)
        torch.mul(<x>, <t>, out=<x>)
        torch.sin(<x>, out=<x>)
        torch.sum(<x>, <d>, out=<x>)
        torch.where(<b>, <x>, <x>, out=<x>)
        torch.cumsum(<x>, <d>, out=<x>)
        torch.matmul(<x>, <x>, out=<x>)
        torch.maximum(<i>, <i>, out=<i>)
        torch.gt(<x>, <x>, out=<b>)
        torch.clamp(<x>, -0.5, 0.5, out=<x>)
        <x>.exp_()
        <x>.sigmoid_().mul_(<x>)
        <x>.neg_()
        <x>.pow_(2)
        <x>.addcmul_(<x>, <x>, value=0.3)
        <x>.addcdiv_(<x>, <x>.abs() + 1, value=0.3)
        <x>.addmm_(<same>, <same>.new_ones(<same>.shape[-1], <same>.shape[-1]))
        <x>.baddbmm_(<x>, <same>.new_ones(<same>.shape[0], <same>.shape[-1], <same>.shape[-1]))
        <x>.fill_(<x>.sum())
        <x>.fill_diagonal_(<c>)
        <x>.tril_()
        <x>.squeeze_().add_(1)
        <x>.unsqueeze_(0)
        <x>.transpose_(0, 1)
        <x>.swapaxes_(0, -1)
        <x>.index_copy_(0, torch.arange(<x>.shape[0], device=DEVICE).flip(0), <x>)
        <x>.index_fill_(<d>, <i>.flatten().long() % <same>.shape[<samed>], <c>)
        <x>.put_(<i>.flatten().long() % <same>.numel(), <x>.flatten(), accumulate=True)
        <x>.renorm_(2, 0, 1.0)
        <x>.round_()
        <x>.clamp_(<x>, None)
        <x>.clamp_min_(<x>)
        <x>.nan_to_num_()
        <x>.masked_fill_(<b>, <x>.mean())
        <x>.swapdims(0, -1).cumsum_(<d>)
        <x>.flip(0).add_(<x>)
        <x>.view_as(<x>).mul_(2)
        <x>.detach().add_(1)
        <x>.data.mul_(2)
        <x>.expand(1, *[-1] * <x>.dim()).mul_(<c>)
        <x>.movedim(0, -1).copy_(<x>.movedim(0, -1).flip(0))
        <x>.split(1, <d>)[-1].zero_()
        <x>.unbind(<d>)[-1].add_(<x>.unbind(<d>)[0])
        <x>.unfold(<d>, 2, 2).mul_(<c>)
        <x>.unflatten(0, (-1, 1)).neg_()
        <x>[..., -1:].copy_(<x>[..., :1])
        <x>[::2], <x>[1::2] = <x>[1::2][:1].clone(), <x>[::2][:1].clone()
        <x>[[0, -1]] = <x>[[-1, 0]]
        <x>[<b>] *= <c>
        <x>[..., <i>.flatten().long() % <same>.shape[-1]] = <c>
        <x>[<i>.flatten().long() % <same>.shape[0] - <same>.shape[0]] = <c>
        <x>[None, ..., 0] = <x>.sum()
        <x> += <x>
        <x> /= <x>.abs().amax() + 1
        <x> **= 2
        <i> &= 3
        <i> <<= 1
        <i> //= <p>
        <i> ^= <i>
        <b> ^= <b>
        <b> |= <x> > 0
        <i>.bitwise_and_(5)
        <i>.clamp_(-2, 2)
        <i>[..., ::2].neg_()
        <i>.copy_(<x>.nan_to_num(0, 0, 0).clamp(-90, 90))
        <i>.cumsum_(<d>)
        <i>.zero_().add_(<b>)
        <x>.copy_(<i>)
        <x>.copy_(<b>)
        <z>.mul_(1j)
        <z>.real.add_(<x>)
        <z>.imag.mul_(<c>)
        <z>.conj().add_(1j)
        <z>[..., 0] = 2j
        <z>.copy_(<x>)
        <z>.conj_physical_()
        <x>.uniform_()
        <x>.normal_(0.5, 2)
        <x>.bernoulli_(0.3)
        F.relu(<x>, inplace=True)
        F.leaky_relu_(<x>, 0.2)
        F.hardswish(<x>, inplace=True)
        F.elu_(<x>)
        F.threshold_(<x>, 0.1, 0.5)
        torch._foreach_mul_([<x>, <x>], <c>)
        torch._foreach_add_([<x>, <x>], [<x>, <x>])
        torch._foreach_zero_([<x>])
        F.embedding(<i>.long() % <x>.shape[0], <same>, max_norm=0.5)
        F.batch_norm(<x>, <x>, <x>.abs_(), training=True)
    """,
}
