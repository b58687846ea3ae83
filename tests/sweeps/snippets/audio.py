# mypy: ignore-errors
# ruff: noqa
"""Speech and audio: spectrograms, filter banks, convolution stacks, alignment, codecs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program

WAVE = lambda: (torch.randn(2, 64),)
FRAMES = lambda: (torch.randn(2, 4, 10),)


def hz_to_mel(f, scale="htk"):
    if scale not in ["slaney", "htk"]:
        raise ValueError('mel_scale should be one of "htk" or "slaney".')
    if scale == "htk":
        return 2595.0 * math.log10(1.0 + (f / 700.0))
    mels = (f - 0.0) / (200.0 / 3)
    if f >= 1000.0:
        mels = 15.0 + math.log(f / 1000.0) / (math.log(6.4) / 27.0)
    return mels


def mel_filters(n_freqs, n_mels, rate=16000, scale="htk"):
    freqs = torch.linspace(0, rate // 2, n_freqs)
    points = torch.linspace(hz_to_mel(0.0, scale), hz_to_mel(rate / 2, scale), n_mels + 2)
    points = 700.0 * (10.0 ** (points / 2595.0) - 1.0)
    diff = points[1:] - points[:-1]
    slopes = points.unsqueeze(0) - freqs.unsqueeze(1)
    down, up = (-1.0 * slopes[:, :-2]) / diff[:-1], slopes[:, 2:] / diff[1:]
    return torch.max(torch.zeros(1), torch.min(down, up))


@program(WAVE)
def log_mel(wave, n_fft=16, hop=8):
    window = torch.hann_window(n_fft)
    stft = torch.stft(wave, n_fft, hop, window=window, return_complex=True)
    magnitudes = stft[..., :-1].abs() ** 2
    mel = mel_filters(n_fft // 2 + 1, 4).T @ magnitudes
    log_spec = torch.clamp(mel, min=1e-10).log10()
    log_spec = torch.maximum(log_spec, log_spec.amax((1, 2), keepdim=True) - 8.0)
    return (log_spec + 4.0) / 4.0


@program(WAVE)
def istft_round_trip(wave):
    window = torch.hann_window(16, periodic=True)
    spec = torch.stft(wave, 16, 4, 16, window, center=True, pad_mode="reflect", return_complex=True)
    phase = torch.polar(torch.ones_like(spec.abs()), spec.angle())
    return torch.istft(spec.abs() * phase, 16, 4, window=window, length=wave.size(-1))


@program(WAVE)
def cepstral(wave, n=3):
    spec = torch.stft(wave, 16, 8, window=torch.hamming_window(16), return_complex=True).abs()
    db = 10.0 * torch.log10(spec.clamp(min=1e-10)) - 10.0 * math.log10(max(1e-10, 1.0))
    k = torch.arange(float(db.size(1)))
    dct = torch.cos(math.pi / db.size(1) * (k + 0.5) * torch.arange(float(n)).unsqueeze(1))
    dct[0] *= 1.0 / math.sqrt(2.0)
    return dct @ db


@program(WAVE)
def framed_energy(wave, size=16, hop=8):
    frames = F.pad(wave, (size // 2, size // 2), mode="reflect" if wave.ndim > 1 else "constant").unfold(-1, size, hop)
    pre = torch.cat([wave[:, :1], wave[:, 1:] - 0.97 * wave[:, :-1]], dim=1)
    zero_crossings = (frames[..., 1:].sign() != frames[..., :-1].sign()).float().mean(-1)
    return frames.pow(2).mean(-1).sqrt(), zero_crossings, pre


@program(FRAMES)
def delta_features(x, win=5):
    n = (win - 1) // 2
    denom = n * (n + 1) * (2 * n + 1) / 3
    kernel = torch.arange(-n, n + 1, 1, dtype=x.dtype).repeat(x.shape[1], 1, 1)
    return F.conv1d(F.pad(x, (n, n), mode="replicate"), kernel, groups=x.shape[1]) / denom


@program(FRAMES, grad=False)
def spec_augment(x, param=3):
    value = torch.rand(x.shape[0]) * param
    start = torch.rand(x.shape[0]) * (x.size(2) - value)
    start, end = start.long()[:, None, None], (start.long() + value.long())[:, None, None]
    mask = torch.arange(0, x.size(2))
    return x.masked_fill((mask >= start) & (mask < end), 0.0)


@dataclass
class ConvConfig:
    channels: list = field(default_factory=lambda: [(4, 3, 2), (4, 2, 1)])
    bias: bool = False

    def output_length(self, n):
        for _, kernel, stride in self.channels:
            n = (
                torch.div(n - kernel, stride, rounding_mode="floor") + 1
                if torch.is_tensor(n)
                else (n - kernel) // stride + 1
            )
        return n


class FeatureExtractor(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layers, inp = nn.ModuleList(), 1
        for i, (dim, k, s) in enumerate(config.channels):
            norm = nn.GroupNorm(dim, dim, affine=True) if i == 0 else nn.Identity()
            self.layers.append(
                nn.Sequential(nn.Conv1d(inp, dim, k, stride=s, bias=config.bias), nn.Dropout(0.0), norm, nn.GELU())
            )
            inp = dim

    def forward(self, x):
        x = x.unsqueeze(1)
        for conv in self.layers:
            x = conv(x)
        return x


@program(lambda: (FeatureExtractor(ConvConfig()), torch.randn(2, 32), torch.tensor([32, 20])))
def wav2vec_features(m, wave, lengths):
    h = m(wave).transpose(1, 2)
    out_lengths = m.config.output_length(lengths)
    mask = torch.zeros(h.shape[:2], dtype=torch.long)
    mask[(torch.arange(h.shape[0]), out_lengths - 1)] = 1
    mask = mask.flip([-1]).cumsum(-1).flip([-1]).bool()
    return h * mask[..., None], m.config.output_length(32)


@program(FRAMES)
def masked_time_steps(x):
    mask = torch.zeros(x.size(0), x.size(2), dtype=torch.bool)
    for i, spans in enumerate([[(0, 2)], [(3, 2), (7, 3)]]):
        for start, length in spans:
            mask[i, start : start + length] = True
    embed = torch.ones(x.size(1)) * 0.1
    y = x.transpose(1, 2).clone()
    y[mask] = embed
    return y


@program(lambda: (torch.randn(2, 6, 8), torch.randn(2, 6, 8)))
def contrastive_wav2vec(quantised, context, temperature=0.1):
    negatives = torch.stack([quantised.roll(i, dims=1) for i in range(1, 4)])
    targets = torch.cat([quantised[None], negatives], dim=0)
    logits = torch.cosine_similarity(context, targets, dim=-1) / temperature
    same = (quantised == negatives).all(-1)
    logits = torch.cat([logits[:1], logits[1:].masked_fill(same, float("-inf"))]).permute(1, 2, 0).reshape(-1, 4)
    return F.cross_entropy(logits.float(), torch.zeros(len(logits), dtype=torch.long), reduction="sum")


class GumbelQuantizer(nn.Module):
    def __init__(self, groups=2, n=4, d=3, tau=2.0):
        super().__init__()
        self.groups, self.n, self.tau = groups, n, tau
        self.codevectors = nn.Parameter(torch.rand(1, groups * n, d))
        self.proj = nn.Linear(8, groups * n)

    @staticmethod
    def perplexity(probs):
        return torch.exp(-torch.sum(probs * torch.log(probs + 1e-7), dim=-1)).sum()

    def forward(self, h):
        b, t, _ = h.shape
        h = self.proj(h).view(b * t * self.groups, -1)
        probs = F.gumbel_softmax(h.float(), tau=self.tau, hard=True).type_as(h)
        soft = torch.softmax(h.view(b * t, self.groups, -1).float(), dim=-1).mean(0)
        per_group = probs.view(b * t, -1).unsqueeze(-1) * self.codevectors
        return per_group.view(b * t, self.groups, self.n, -1).sum(-2).view(b, t, -1), self.perplexity(soft)


@program(lambda: (GumbelQuantizer(), torch.randn(2, 3, 8)))
def gumbel_codes(m, h):
    return m(h)


@program(lambda: (torch.randn(2, 4, 6),))
def monotonic_alignment(log_p):
    value = torch.full((2, 4), -1e9)
    value[:, 0] = log_p[:, 0, 0]
    values = [value]
    for t in range(1, log_p.size(2)):
        stay, move = values[-1], F.pad(values[-1], (1, -1), value=-1e9)
        values.append(torch.maximum(stay, move) + log_p[:, :, t])
    return torch.stack(values, -1)[:, -1, -1]


@program(lambda: (torch.randn(2, 3, 4), torch.tensor([[1, 2, 0], [2, 1, 1]])))
def length_regulator(x, durations, max_len=4):
    ends = durations.cumsum(1)
    frames = torch.arange(max_len)
    path = (frames[None, None] < ends[..., None]) & (frames[None, None] >= (ends - durations)[..., None])
    return path.transpose(1, 2).float() @ x, path.any(1)


class CausalConv(nn.Conv1d):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.left = (self.kernel_size[0] - 1) * self.dilation[0]

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class WaveNet(nn.Module):
    def __init__(self, c=4, layers=3):
        super().__init__()
        self.convs = nn.ModuleList(CausalConv(c, 2 * c, 2, dilation=2**i) for i in range(layers))
        self.skips = nn.ModuleList(nn.Conv1d(c, 2 * c, 1) for _ in range(layers))

    def forward(self, x):
        total = None
        for conv, skip in zip(self.convs, self.skips):
            gate, filt = conv(x).chunk(2, 1)
            h, s = skip(torch.sigmoid(gate) * filt.tanh()).split(x.shape[1], 1)
            x = (x + h) * math.sqrt(0.5)
            total = s if total is None else total + s
        return F.relu_(total)


@program(lambda: (WaveNet(), *FRAMES()))
def wavenet(m, x):
    return m(x)


class Snake(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, c, 1))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(shape[0], shape[1], -1)
        return (x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).pow(2)).reshape(shape)


@program(lambda: (nn.Sequential(Snake(4), nn.ConvTranspose1d(4, 2, 4, stride=2, padding=1)), *FRAMES()))
def vocoder_block(m, x):
    return torch.tanh(m(x)), m[0].alpha.shape


@program(FRAMES)
def residual_codes(x):
    books = [torch.randn(8, 4, generator=None) for _ in range(3)]
    residual, quantised, codes = x.transpose(1, 2), 0.0, []
    for book in books:
        index = torch.cdist(residual, book.expand(2, -1, -1)).argmin(-1)
        q = F.embedding(index, book)
        residual, quantised = residual - q, quantised + q
        codes.append(index)
    return x + (quantised.mT - x).detach(), torch.stack(codes), residual.square().mean()


@program(lambda: (torch.randn(2, 2, 32), torch.randn(2, 2, 32)))
def scale_invariant_ratio(est, ref):
    est, ref = (v - v.mean(-1, keepdim=True) for v in (est, ref))
    pairs = torch.einsum("bit,bjt->bij", est, ref)
    target = pairs[..., None] * ref[:, None] / (ref.pow(2).sum(-1)[:, None, :, None] + 1e-8)
    noise = est[:, :, None] - target
    ratio = 10 * torch.log10(target.pow(2).sum(-1) / noise.pow(2).sum(-1))
    perms = torch.tensor([[0, 1], [1, 0]])
    scores = torch.stack([ratio[:, torch.arange(2), p].mean(-1) for p in perms.unbind()], -1)
    return -scores.max(-1).values.mean()


@program(WAVE)
def multi_resolution_loss(wave, sizes: Sequence[int] = (8, 16)):
    loss, other = 0.0, wave.flip(-1)
    for n in sizes:
        a, b = (torch.stft(w, n, n // 2, window=torch.ones(n), return_complex=True).abs() for w in (wave, other))
        loss += F.l1_loss(a, b) + torch.linalg.norm(b - a, ord="fro", dim=(1, 2)).mean()
    return loss / len(sizes)


@program(WAVE)
def mu_law(wave, channels=256):
    mu = torch.tensor(channels - 1.0)
    x = wave.tanh()
    y = torch.sign(x) * torch.log1p(mu * torch.abs(x)) / torch.log1p(mu)
    codes = ((y + 1) / 2 * mu + 0.5).to(torch.int64)
    back = codes / mu * 2 - 1
    return y, back.sign() * (torch.exp(back.abs() * torch.log1p(mu)) - 1.0) / mu


@program(WAVE)
def resampled(wave, up=3, down=2):
    width = 6
    t = (torch.arange(-width, width + 1)[None] + torch.arange(0, -up, -1)[:, None] / up) * 0.99
    kernel = (
        torch.where(t == 0, torch.tensor(1.0), torch.sin(t * math.pi) / (t * math.pi))
        * torch.cos(t.clamp(-width, width) * math.pi / width / 2) ** 2
    )
    return (
        F.conv1d(F.pad(wave, (width, width + down))[:, None], kernel[:, None], stride=down)
        .transpose(1, 2)
        .reshape(len(wave), -1)
    )


@program(WAVE)
def biquad(wave, b=(0.2, 0.3, 0.2), a=(1.0, -0.5, 0.1)):
    y1 = y2 = torch.zeros(wave.size(0))
    padded, out = F.pad(wave, (2, 0)), []
    for n in range(2, 8):
        y = sum(bi * padded[:, n - i] for i, bi in enumerate(b)) - a[1] * y1 - a[2] * y2
        y1, y2 = y, y1
        out.append(y)
    return torch.stack(out, -1).clamp(-1, 1)


@program(lambda: (nn.GRU(4, 3, bidirectional=True), torch.randn(5, 2, 4)))
def recognizer(rnn, x):
    out, h = rnn(x)
    pooled = torch.stack([out.mean(0), out.max(0)[0]]).mean(0)
    return F.glu(torch.cat([pooled, pooled], -1)), h.transpose(0, 1).flatten(1)


@program(lambda: (torch.randn(2, 5, 4), torch.tensor([5, 3])))
def attentive_statistics(x, lengths):
    mask = torch.arange(x.size(1))[None, :] < lengths[:, None]
    scores = x.mean(-1).masked_fill(~mask, -torch.inf).softmax(1)[..., None]
    mean = (scores * x).sum(1)
    std = ((scores * (x - mean[:, None]) ** 2).sum(1)).clamp(min=1e-12).sqrt()
    return torch.cat([mean, std], -1)
