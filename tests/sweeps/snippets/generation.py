# mypy: ignore-errors
# ruff: noqa
"""Generation: logits processors, sampling, beam search, speculative decoding, token bookkeeping."""

import abc
import functools
import heapq
import itertools
from collections import OrderedDict, defaultdict, deque
from dataclasses import asdict, dataclass, fields, replace
from typing import Callable, List, Optional

import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program

LOGITS = lambda: (torch.randn(2, 10), torch.randint(0, 10, (2, 4)))


class Processor(abc.ABC):
    @abc.abstractmethod
    def __call__(self, input_ids, scores): ...

    def __repr__(self):
        return f"{type(self).__name__}()"


class Temperature(Processor):
    def __init__(self, temperature):
        if not isinstance(temperature, float) or temperature <= 0:
            raise ValueError(f"`temperature` (={temperature}) has to be a strictly positive float")
        self.temperature = temperature

    def __call__(self, input_ids, scores):
        return scores / self.temperature


class TopK(Processor):
    def __init__(self, k, filter_value=-float("inf"), min_keep=1):
        self.k, self.filter_value = max(k, min_keep), filter_value

    def __call__(self, input_ids, scores):
        k = min(self.k, scores.size(-1))
        return scores.masked_fill(scores < torch.topk(scores, k)[0][..., -1, None], self.filter_value)


class TopP(Processor):
    def __init__(self, p):
        self.p = p

    def __call__(self, input_ids, scores):
        ordered, index = torch.sort(scores, descending=False)
        remove = ordered.softmax(dim=-1).cumsum(dim=-1) <= (1 - self.p)
        remove[..., -1:] = 0
        return scores.masked_fill(remove.scatter(1, index, remove), -torch.inf)


class Repetition(Processor):
    def __init__(self, penalty):
        self.penalty = penalty

    def __call__(self, input_ids, scores):
        score = torch.gather(scores, 1, input_ids)
        score = torch.where(score < 0, score * self.penalty, score / self.penalty)
        return scores.scatter(1, input_ids, score)


class ProcessorList(list):
    def __call__(self, input_ids, scores, **kwargs):
        for processor in self:
            scores = processor(input_ids, scores, **kwargs)
        return scores


@program(LOGITS)
def processors(scores, ids):
    chain = ProcessorList([Temperature(0.7), TopK(5)])
    chain.append(TopP(0.9))
    chain.insert(0, Repetition(1.2))
    return chain(ids, scores).softmax(-1), [repr(p) for p in chain]


@program(LOGITS)
def wrong_temperature_is_refused(scores, ids):
    try:
        scores = Temperature(0)(ids, scores)
    except ValueError as e:
        message = str(e)
    return scores + 1, message


@program(LOGITS, grad=False)
def multinomial(scores, ids):
    probs = F.softmax(scores, dim=-1)
    next_tokens = torch.multinomial(probs, num_samples=1).squeeze(1)
    return torch.cat([ids, next_tokens[:, None]], dim=-1)


@program(LOGITS, grad=False)
def gumbel_argmax(scores, ids):
    noise = -torch.empty_like(scores).exponential_().log()
    return (scores + noise).argmax(-1)


@program(LOGITS)
def min_p_typical(scores, ids, min_p=0.1, mass=0.9):
    probs = scores.softmax(-1)
    kept = scores.masked_fill(probs < min_p * probs.amax(-1, keepdim=True), -1e4)
    normalized = F.log_softmax(kept, dim=-1)
    entropy = -(normalized * normalized.exp()).nansum(-1, keepdim=True)
    shifted = torch.abs((-normalized) - entropy)
    order = shifted.argsort(descending=False)
    cumulative = scores.gather(-1, order).softmax(dim=-1).cumsum(dim=-1)
    last = (cumulative < mass).sum(dim=1).clamp_(max=order.shape[-1] - 1)
    remove = shifted.sort()[0] > shifted.sort()[0].gather(1, last.view(-1, 1))
    return kept.masked_fill(remove.scatter(1, order, remove), -1e4)


@dataclass
class GenerationConfig:
    max_new_tokens: int = 3
    num_beams: int = 2
    eos_token_id: Optional[int] = 9
    length_penalty: float = 1.0
    stop: tuple = ()

    def validate(self):
        for f in fields(self):
            if f.name.startswith("num_") and getattr(self, f.name) < 1:
                raise ValueError(f.name)
        return self

    def update(self, **kwargs):
        unused = {k: v for k, v in kwargs.items() if not hasattr(self, k)}
        for key in kwargs.keys() - unused.keys():
            setattr(self, key, kwargs[key])
        return unused


@program(LOGITS)
def config_updates(scores, ids):
    config = replace(GenerationConfig(), num_beams=3).validate()
    unused = config.update(length_penalty=2.0, unknown=1)
    return scores * config.length_penalty ** len(unused), asdict(config), unused


class Tiny(nn.Module):
    def __init__(self, vocab=10, dim=8):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, return_dict=True):
        logits = self.head(self.embed(ids).cumsum(1).tanh())
        return OrderedDict(logits=logits) if return_dict else (logits,)


MODEL = lambda: (Tiny(), torch.randint(0, 10, (2, 3)))


@program(MODEL, grad=False)
def greedy(model, ids):
    unfinished = torch.ones(ids.shape[0], dtype=torch.long)
    with torch.inference_mode():
        for _ in range(3):
            step = model(ids)["logits"][:, -1].argmax(-1)
            step = step * unfinished + 0 * (1 - unfinished)
            ids = torch.cat([ids, step[:, None]], -1)
            unfinished = unfinished.mul((step != 9).long())
    return ids.clone()


@program(MODEL, grad=False)
@torch.no_grad()
def beam_search(model, ids):
    config = GenerationConfig()
    b, k = ids.size(0), config.num_beams
    beams = ids.repeat_interleave(k, dim=0)
    scores = torch.zeros(b, k)
    scores[:, 1:] = -1e9
    for _ in range(config.max_new_tokens):
        logp = model(beams)["logits"][:, -1].log_softmax(-1)
        vocab = logp.size(-1)
        total = (scores.view(-1, 1) + logp).view(b, k * vocab)
        scores, index = total.topk(k, dim=1, largest=True, sorted=True)
        origin = index // vocab + torch.arange(b)[:, None] * k
        beams = torch.cat([beams[origin.flatten()], (index % vocab).view(-1, 1)], 1)
    return beams.view(b, k, -1)[:, 0], scores / beams.size(1) ** config.length_penalty


@program(MODEL, grad=False)
def speculative_accept(model, ids):
    draft = torch.tensor([[1, 2], [3, 4]])
    logits = model(torch.cat([ids, draft], 1), return_dict=False)[0][:, ids.size(1) - 1 : -1]
    p = logits.softmax(-1).gather(-1, draft[..., None]).squeeze(-1)
    accepted = torch.rand_like(p) < p / 0.3
    n = (~accepted).cumsum(-1).lt(1).sum(-1)
    residual = torch.clamp(logits.softmax(-1) - 0.05, min=0)
    residual.div_(residual.sum(-1, keepdim=True))
    return n, residual


@program(LOGITS)
def banned_ngrams(scores, ids):
    bad = [[1], [2, 3], [4, 5, 6]]
    static = [b[0] for b in bad if len(b) == 1]
    by_length = defaultdict(list)
    for word in bad:
        by_length[len(word)].append(tuple(word))
    mask = torch.zeros(scores.shape[-1], dtype=torch.bool)
    mask[static] = True
    for length, words in sorted(by_length.items(), reverse=True):
        if length > 1:
            last = {w[-1] for w in words}
            mask[sorted(last)] |= True
    return scores.masked_fill(mask, -1e9), dict(by_length)


class StoppingCriteria:
    def __init__(self, max_length):
        self.max_length = max_length

    def __call__(self, ids):
        return torch.full((ids.size(0),), ids.shape[-1] >= self.max_length, dtype=torch.bool)

    def __or__(self, other):
        return lambda ids: self(ids) | other(ids)


@program(LOGITS)
def stopping(scores, ids):
    done = StoppingCriteria(3) | StoppingCriteria(8)
    return scores + done(ids)[:, None], any(c.max_length == 3 for c in [StoppingCriteria(3)])


@program(lambda: (torch.randn(4, 10), torch.tensor([3, 1, 2, 0])))
def reorder_past(logits, beam_index):
    past = tuple((logits * i, logits + i) for i in range(2))
    reordered = ()
    for layer in past:
        reordered += (tuple(state.index_select(0, beam_index.to(state.device)) for state in layer),)
    return reordered


@program(lambda: (torch.randint(1, 9, (2, 5)), torch.tensor([5, 3])))
def padded_positions(ids, lengths):
    mask = (torch.arange(ids.size(1)) < lengths.unsqueeze(1)).long()
    positions = mask.cumsum(-1) - 1
    positions.masked_fill_(mask == 0, 1)
    last = ids[torch.arange(ids.size(0)), lengths - 1]
    return positions, last, ids.where(mask.bool(), -100)


@program(lambda: (torch.randint(1, 9, (2, 5)),))
def shift_tokens_right(ids, pad=0, start=1):
    shifted = ids.new_zeros(ids.shape)
    shifted[:, 1:] = ids[:, :-1].clone()
    shifted[:, 0] = start
    shifted.masked_fill_(shifted == -100, pad)
    return shifted


@program(lambda: (torch.randn(2, 6, 10, requires_grad=True), torch.randint(0, 10, (2, 6))))
def contrastive_guidance(logits, ids, scale=1.5):
    cond, uncond = logits.chunk(2)
    guided = uncond + scale * (cond - uncond)
    return torch.stack([F.log_softmax(l, -1).gather(-1, i[:, None]).sum() for l, i in zip(guided, ids[:1])])


@program(LOGITS)
def windows_of_tokens(scores, ids):
    recent = deque(maxlen=2)
    seen = []
    for step, group in itertools.groupby([1, 1, 2, 3, 3]):
        recent.append(step)
        seen.append((step, len(list(group)), tuple(recent)))
    pairs = list(itertools.pairwise(range(ids.size(1))))
    return sum(scores[:, a] * scores[:, b] for a, b in pairs), seen


@program(LOGITS)
def partial_processors(scores, ids):
    def bias(scores, ids, *, token, by):
        return scores.index_add(1, torch.tensor([token]), torch.full((scores.size(0), 1), by))

    pipeline: List[Callable] = [functools.partial(bias, token=t, by=0.5 * t) for t in range(3)]
    return functools.reduce(lambda s, f: f(s, ids), pipeline, scores)


@program(LOGITS, grad=False)
def entropy_dependent_temperature(scores, ids):
    entropy = torch.special.entr(scores.softmax(-1)).sum(-1, keepdim=True)
    poly = torch.tensor([-0.037, 0.481, -2.3, 4.917, -1.791])
    powers = torch.stack([entropy**i for i in range(len(poly) - 1, -1, -1)], -1)
    return scores * torch.where(entropy > 0.5, (powers * poly).sum(-1).maximum(torch.ones(())), 1.0)


@program(lambda: (torch.randn(2, 3, 10), torch.full((2, 3), 4)))
def mirostat_surprise(logits, target):
    surprise = -logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1) / torch.log(torch.tensor(2.0))
    mu, out = 2 * 5.0, []
    for s in surprise.unbind(1):
        mu = mu - 0.1 * (s - 5.0)
        out.append(mu)
    return torch.stack(out, 1)


class Trie:
    def __init__(self):
        self.children, self.end = {}, False

    def add(self, tokens):
        node = self
        for t in tokens:
            node = node.children.setdefault(t, Trie())
        node.end = True

    def allowed(self, prefix):
        node = self
        for t in prefix:
            if t not in node.children:
                return []
            node = node.children[t]
        return sorted(node.children)


@program(LOGITS)
def constrained_by_trie(scores, ids):
    trie = Trie()
    for word in ([1, 2, 3], [1, 4], [5]):
        trie.add(word)
    mask = torch.full_like(scores, -torch.inf)
    mask[:, trie.allowed([1])] = 0
    return scores + mask, trie.allowed([9])
