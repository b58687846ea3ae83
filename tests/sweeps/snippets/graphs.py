# mypy: ignore-errors
# ruff: noqa
"""Message passing on graphs, point clouds and sets, in the manner of PyTorch Geometric."""

import copy
import inspect
from collections import defaultdict
from typing import Any, Mapping, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program

EDGES = lambda: torch.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 2, 0]])
GRAPH = lambda: (torch.randn(4, 6), EDGES())


def scatter(src, index, dim_size, reduce="sum"):
    shape = (dim_size, *src.shape[1:])
    expanded = index.view(-1, *[1] * (src.dim() - 1)).expand_as(src)
    if reduce in ("sum", "add"):
        return src.new_zeros(shape).scatter_add_(0, expanded, src)
    if reduce == "mean":
        count = src.new_zeros(dim_size).scatter_add_(0, index, src.new_ones(len(index))).clamp_(min=1)
        return scatter(src, index, dim_size) / count.view(-1, *[1] * (src.dim() - 1))
    return src.new_zeros(shape).scatter_reduce_(0, expanded, src, f"a{reduce}", include_self=False)


def maybe_num_nodes(edge_index, n: Optional[int] = None) -> int:
    return n if n is not None else int(edge_index.max()) + 1


class MessagePassing(nn.Module):
    special = {"edge_index", "size", "index", "dim_size"}

    def __init__(self, aggr="sum", flow="source_to_target"):
        super().__init__()
        self.aggr, self.flow = aggr, flow
        params = inspect.signature(self.message).parameters
        self._message_args = [n for n in params if n != "self"]

    def collect(self, edge_index, kwargs):
        i, j = (1, 0) if self.flow == "source_to_target" else (0, 1)
        out = {}
        for arg in self._message_args:
            if arg[-2:] not in {"_i", "_j"}:
                out[arg] = kwargs.get(arg)
            else:
                out[arg] = kwargs[arg[:-2]].index_select(0, edge_index[j if arg[-2:] == "_j" else i])
        return out, edge_index[i]

    def propagate(self, edge_index, **kwargs):
        inputs, index = self.collect(edge_index, kwargs)
        out = self.message(**inputs)
        n = next(v.size(0) for v in kwargs.values() if isinstance(v, torch.Tensor))
        return self.update(self.aggregate(out, index, n))

    def message(self, x_j):
        return x_j

    def aggregate(self, inputs, index, dim_size):
        return scatter(inputs, index, dim_size, self.aggr)

    def update(self, out):
        return out


class GCN(MessagePassing):
    def __init__(self, i, o):
        super().__init__(aggr="add")
        self.lin, self.bias = nn.Linear(i, o, bias=False), nn.Parameter(torch.zeros(o))

    def forward(self, x, edge_index):
        loops = torch.arange(x.size(0)).repeat(2, 1)
        edge_index = torch.cat([edge_index, loops], dim=1)
        row, col = edge_index
        deg = torch.zeros(x.size(0)).index_add_(0, col, torch.ones(col.numel()))
        inv = deg.pow(-0.5)
        inv[inv == float("inf")] = 0
        return self.propagate(edge_index, x=self.lin(x), norm=inv[row] * inv[col]) + self.bias

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class GAT(MessagePassing):
    def __init__(self, i, o, heads=2):
        super().__init__()
        self.heads, self.o = heads, o
        self.lin = nn.Linear(i, heads * o, bias=False)
        self.att_src, self.att_dst = (nn.Parameter(torch.randn(1, heads, o)) for _ in range(2))

    def forward(self, x, edge_index):
        x = self.lin(x).view(-1, self.heads, self.o)
        alpha = tuple((x * a).sum(-1) for a in (self.att_src, self.att_dst))
        e = F.leaky_relu(alpha[0][edge_index[0]] + alpha[1][edge_index[1]], 0.2)
        e = (e - scatter(e, edge_index[1], len(x), "max")[edge_index[1]]).exp()
        e = e / (scatter(e, edge_index[1], len(x))[edge_index[1]] + 1e-16)
        return self.propagate(edge_index, x=x, alpha=F.dropout(e, 0.2, self.training)).mean(dim=1)

    def message(self, x_j, alpha):
        return x_j * alpha.unsqueeze(-1)


class EdgeConv(MessagePassing):
    def __init__(self, i, o):
        super().__init__(aggr="max", flow="target_to_source")
        self.mlp = nn.Sequential(nn.Linear(2 * i, o), nn.ReLU())

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=1))


@program(lambda: (GCN(6, 3), *GRAPH()))
def graph_convolution(m, x, edges):
    return F.log_softmax(m(x, edges), dim=1)


@program(lambda: (GAT(6, 3), *GRAPH()))
def graph_attention(m, x, edges):
    return m(x, edges)


@program(lambda: (EdgeConv(6, 3), *GRAPH()))
def edge_convolution(m, x, edges):
    return m(x, edges)


@program(
    lambda: (
        nn.ModuleDict({"a__to__b": GCN(6, 3), "b__to__a": GCN(6, 3)}),
        {"a": torch.randn(4, 6), "b": torch.randn(4, 6)},
        {("a", "to", "b"): EDGES(), ("b", "to", "a"): EDGES().flip(0)},
    )
)
def heterogeneous(convs, x_dict, edge_dict):
    outs = defaultdict(list)
    for edge_type, edges in edge_dict.items():
        src, rel, dst = edge_type
        key = "__".join(edge_type)
        if key not in convs:
            continue
        outs[dst].append(convs[key](x_dict[src] + x_dict[dst], edges))
    return {k: torch.stack(v).sum(0) for k, v in outs.items()}


class Data:
    def __init__(self, x=None, edge_index=None, **kwargs):
        self.__dict__["_store"] = {"x": x, "edge_index": edge_index, **kwargs}

    def __getattr__(self, key):
        if key == "_store":
            raise AttributeError(key)
        try:
            return self._store[key]
        except KeyError:
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{key}'") from None

    def __setattr__(self, key, value):
        self._store[key] = value

    def __contains__(self, key):
        return self._store.get(key) is not None

    @property
    def num_nodes(self):
        return self.x.size(0)

    def __iter__(self):
        for key in sorted(k for k in self._store if k in self):
            yield key, self._store[key]

    def __cat_dim__(self, key):
        return -1 if "index" in key else 0

    def __inc__(self, key):
        return self.num_nodes if "index" in key else 0


class Batch(Data):
    @classmethod
    def from_list(cls, items):
        out, offset = defaultdict(list), defaultdict(int)
        for i, data in enumerate(items):
            for key, value in data:
                out[key].append(value + offset[key] if offset[key] else value)
                offset[key] += data.__inc__(key)
            out["batch"].append(torch.full((data.num_nodes,), i))
        dims = Data()
        return cls(**{k: torch.cat(v, dim=dims.__cat_dim__(k)) for k, v in out.items()})


@program(lambda: (GCN(6, 3), Data(*GRAPH(), y=None), torch.randn(3, 6)))
def batched_graphs(m, a, x):
    b = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 2]]))
    batch = Batch.from_list([a, b])
    h = m(batch.x, batch.edge_index)
    return scatter(h, batch.batch, 2, "mean"), "y" in a, getattr(batch, "pos", "no"), batch.edge_index


@program(lambda: (torch.randn(2, 8, 3),))
def nearest_neighbours(points, k=3):
    inner = -2 * points @ points.transpose(2, 1)
    xx = (points**2).sum(2, keepdim=True)
    idx = (-xx - inner - xx.transpose(2, 1)).topk(k=k, dim=-1)[1]
    flat = (idx + torch.arange(2).view(-1, 1, 1) * points.size(1)).view(-1)
    feature = points.reshape(-1, 3)[flat].view(2, 8, k, 3)
    center = points.unsqueeze(2).repeat(1, 1, k, 1)
    return torch.cat((feature - center, center), dim=3).permute(0, 3, 1, 2)


@program(lambda: (torch.randn(2, 8, 3),), grad=False)
def farthest_points(points, n=3):
    b, size, _ = points.shape
    centroids, distance = torch.zeros(b, n, dtype=torch.long), torch.ones(b, size) * 1e10
    farthest, batch = torch.zeros(b, dtype=torch.long), torch.arange(b)
    for i in range(n):
        centroids[:, i] = farthest
        dist = ((points - points[batch, farthest, :].view(b, 1, 3)) ** 2).sum(-1)
        distance = torch.where(dist < distance, dist, distance)
        farthest = torch.max(distance, -1)[1]
    return centroids


@program(lambda: (torch.randn(2, 8, 3), torch.randn(2, 3, 3)), grad=False)
def ball_query(points, centers, radius=1.0, k=4):
    sq = torch.cdist(centers, points).square()
    index = torch.arange(8).view(1, 1, 8).repeat(2, 3, 1)
    index[sq > radius**2] = 8
    index = index.sort(dim=-1)[0][:, :, :k]
    first = index[:, :, :1].expand_as(index)
    return torch.where(index == 8, first, index).clamp(max=7)


@program(GRAPH)
def laplacian_features(x, edges):
    adj = torch.zeros(4, 4)
    adj[edges[0], edges[1]] = 1
    adj = ((adj + adj.T) > 0).float()
    deg = adj.sum(1)
    lap = torch.diag(deg) - adj
    walk = adj / deg.clamp(min=1)[:, None]
    return (
        torch.stack([torch.linalg.matrix_power(walk, k).diagonal() for k in range(1, 4)], -1),
        lap @ x,
        torch.linalg.eigvalsh(lap).sum(),
    )


@program(GRAPH)
def chebyshev(x, edges, order=3):
    def step(v):
        return scatter(v[edges[0]], edges[1], 4) * 0.5

    t = [x, step(x)]
    while len(t) < order:
        t.append(2 * step(t[-1]) - t[-2])
    return sum((k + 1) * v for k, v in enumerate(t))


@program(GRAPH)
def sparse_product(x, edges):
    adj = torch.sparse_coo_tensor(edges, torch.ones(edges.size(1)), (4, 4)).to_dense()
    return adj @ x


@program(GRAPH)
def edges_dropped_by_mask(x, edges):
    keep = torch.rand(edges.size(1)) > 0.3
    w = keep.to(x.dtype)
    return scatter(x[edges[0]] * w[:, None], edges[1], x.size(0)), edges.masked_fill(~keep, 0)


@program(lambda: (torch.randn(4, 5, 5), nn.Linear(5, 5)))
def dense_pooling(adj, lin):
    s = torch.softmax(lin(adj), dim=-1)
    pooled = s.transpose(1, 2) @ adj @ s
    link = torch.norm(adj - torch.matmul(s, s.transpose(1, 2)), p=2) / adj.numel()
    entropy = (-s * torch.log(s + 1e-15)).sum(dim=-1).mean()
    pooled = pooled.clone()
    ind = torch.arange(5)
    pooled[:, ind, ind] = 0
    return pooled / (pooled.sum(-1, keepdim=True).abs() + 1e-15).sqrt(), link, entropy


class SetTransformerBlock(nn.Module):
    def __init__(self, d=6, h=2, seeds=2):
        super().__init__()
        self.seeds = nn.Parameter(torch.randn(1, seeds, d))
        self.att, self.ln = nn.MultiheadAttention(d, h, batch_first=True), nn.LayerNorm(d)

    def forward(self, x, batch, n):
        counts = torch.bincount(batch, minlength=n)
        start = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
        position = torch.arange(len(x)) - start[batch]
        dense, mask = x.new_zeros(n, len(x), x.size(1)), torch.ones(n, len(x), dtype=torch.bool)
        dense[batch, position] = x
        mask[batch, position] = False
        out, _ = self.att(self.seeds.repeat(n, 1, 1), dense, dense, key_padding_mask=mask)
        return self.ln(out)


@program(lambda: (SetTransformerBlock(), torch.randn(5, 6), torch.tensor([0, 0, 1, 1, 1])))
def pooled_sets(m, x, batch):
    return m(x, batch, 2)


class Equivariant(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * d + 1, d), nn.SiLU())
        self.coord, self.node = nn.Linear(d, 1, bias=False), nn.Linear(2 * d, d)

    def forward(self, h, pos, edges):
        row, col = edges
        diff = pos[row] - pos[col]
        radial = diff.pow(2).sum(-1, keepdim=True)
        m = self.edge(torch.cat([h[row], h[col], radial], -1))
        trans = (diff / (radial + 1e-8).sqrt().detach()) * self.coord(m)
        pos = pos + scatter(trans.clamp(-100, 100), row, len(pos), "mean")
        return h + self.node(torch.cat([h, scatter(m, row, len(h))], -1)), pos


@program(lambda: (Equivariant(), *GRAPH(), torch.randn(4, 3)))
def equivariant_layer(m, h, edges, pos):
    return m(h, pos, edges)


@program(lambda: (torch.randn(4, 3), EDGES()))
def radial_basis(pos, edges, cutoff=3.0, n=4):
    d = (pos[edges[0]] - pos[edges[1]]).norm(dim=-1)
    offset = torch.linspace(0.0, cutoff, n)
    smeared = (
        torch.exp(-0.5 / (offset[1] - offset[0]).item() ** 2 * (d.view(-1, 1) - offset.view(1, -1)) ** 2)
        if False
        else torch.exp(-((d[:, None] - offset) ** 2))
    )
    envelope = 0.5 * (torch.cos(d * torch.pi / cutoff) + 1.0) * (d < cutoff).float()
    return smeared * envelope[:, None]


@program(lambda: (torch.randn(4, 6), torch.randn(3, 6), EDGES()))
def knowledge_graph_scores(entities, relations, edges):
    h, t = entities[edges[0]], entities[edges[1]]
    r = relations[torch.arange(edges.size(1)) % 3]
    hr, hi = h.chunk(2, -1)
    tr, ti = t.chunk(2, -1)
    rr, ri = r.chunk(2, -1)
    return -(F.normalize(h) + r - F.normalize(t)).norm(p=1, dim=-1), (
        hr * rr * tr + hi * rr * ti + hr * ri * ti - hi * ri * tr
    ).sum(-1)


@program(GRAPH)
def random_walks(x, edges):
    adj = torch.full((4, 4), 1e-6)
    adj[edges[0], edges[1]] = 1.0
    start = torch.arange(4)
    walk = [start]
    for _ in range(3):
        walk.append(torch.multinomial(adj[walk[-1]], 1).squeeze(-1))
    return x[torch.stack(walk, 1)].mean(1), torch.stack(walk, 1)


class JumpingKnowledge(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode.lower()
        assert self.mode in ["cat", "max", "last"]

    def forward(self, xs):
        return {
            "cat": lambda: torch.cat(xs, dim=-1),
            "max": lambda: torch.stack(xs, dim=-1).max(dim=-1)[0],
            "last": lambda: xs[-1],
        }[self.mode]()

    def __repr__(self):
        return f"{self.__class__.__name__}({self.mode})"


@program(lambda: ([JumpingKnowledge(m) for m in ("cat", "MAX", "last")], *GRAPH()))
def jumping_knowledge(jks, x, edges):
    xs = [x]
    for _ in range(2):
        xs += [torch.tanh(scatter(xs[-1][edges[0]], edges[1], 4))]
    return [jk(xs) for jk in jks], [str(jk) for jk in jks]


@program(GRAPH)
def edge_utilities(x, edges):
    row, col = edges
    both = torch.cat([edges, edges.flip([0])], dim=1)
    key, perm = (both[0] * 4 + both[1]).sort(stable=True)
    keep = torch.cat([key.new_ones(1, dtype=torch.bool), key[1:] != key[:-1]])
    no_loops = row != col
    return both[:, perm], keep, x[row].where(no_loops[:, None], torch.zeros(())), torch.isin(row, torch.tensor([0, 2]))
