"""Strings that attempt injection, and a record that contains them in all of its text fields."""

from __future__ import annotations

from compiler_core.records import (
    Artifact,
    Expansion,
    FailedGuard,
    FusionRefusal,
    Graph,
    GraphBreak,
    Guard,
    Kernel,
    Language,
    MissedEntry,
    Node,
    Pane,
    Partition,
    Record,
    Span,
    StackLine,
    Symbol,
    ValueDecision,
)
from compiler_core.records.differences import Comparison, Difference, Total
from compiler_core.records.recompiles import recompile

EVIL = "window.evil=1"
MEGABYTE = 1_000_000

MARKUP = [
    f"<script>{EVIL}</script>",
    f"</script><script>{EVIL}</script>",
    f"</style><script>{EVIL}</script>",
    f"</title><script>{EVIL}</script>",
    f"</textarea><script>{EVIL}</script>",
    f"--><script>{EVIL}</script>",
    f"]]><script>{EVIL}</script>",
    f"<!--<script>{EVIL}</script>",
    f"<img src=x onerror='{EVIL}'>",
    f'<img src=x onerror="{EVIL}">',
    f"<img src=x onerror={EVIL}>",
    f"<svg onload={EVIL}>",
    f"<svg><script>{EVIL}</script></svg>",
    f"<svg><animate onbegin={EVIL} attributeName=x dur=1s>",
    f"<svg><foreignObject><iframe srcdoc='<script>parent.{EVIL}</script>'></foreignObject></svg>",
    f"<math><mtext><script>{EVIL}</script></mtext></math>",
    f"<iframe srcdoc='<script>parent.{EVIL}</script>'></iframe>",
    f"<iframe src='javascript:parent.{EVIL}'></iframe>",
    f"<object data='javascript:{EVIL}'></object>",
    f"<embed src='javascript:{EVIL}'>",
    f"<a href='javascript:{EVIL}'>click</a>",
    f"<body onload={EVIL}>",
    f"<details open ontoggle={EVIL}>",
    f"<input autofocus onfocus={EVIL}>",
    f"<video><source onerror={EVIL}></video>",
    f"<marquee onstart={EVIL}>",
    f"<form action='javascript:{EVIL}'><button autofocus>go</button></form>",
    f"<meta http-equiv=refresh content='0;url=javascript:{EVIL}'>",
    "<meta http-equiv=Content-Security-Policy content=''>",
    "<base href='https://evil.example/'>",
    "<link rel=stylesheet href='https://evil.example/a.css'>",
    "<style>*{display:none}</style>",
    "<style>@import 'https://evil.example/a.css'</style>",
    "<img src='https://evil.example/pixel.png'>",
    f"<template shadowrootmode=open><script>{EVIL}</script></template>",
    "<plaintext>",
    "<noscript>",
    "<xmp>",
    f"'\"><script>{EVIL}</script>",
    f'" onmouseover="{EVIL}" x="',
    f"' onfocus='{EVIL}' autofocus x='",
    f"` onload=`{EVIL}`",
    f"&lt;script&gt;{EVIL}&lt;/script&gt;",
    f"&#60;script&#62;{EVIL}&#60;/script&#62;",
    f"\\u003cscript\\u003e{EVIL}\\u003c/script\\u003e",
    f"%3Cscript%3E{EVIL}%3C/script%3E",
]
CODE = [
    f"javascript:{EVIL}",
    f"data:text/html,<script>{EVIL}</script>",
    f"vbscript:{EVIL}",
    f"${{{EVIL}}}",
    f"`${{{EVIL}}}`",
    f"{{{{constructor.constructor('{EVIL}')()}}}}",
    f"');{EVIL};//",
    f'");{EVIL};//',
    f"\n{EVIL}\n",
    f"*/{EVIL}/*",
    "url(https://evil.example/a.png)",
    "red;background:url(https://evil.example/a.png)",
    "1;position:fixed;inset:0",
    f"$(({EVIL}))",
    "../../../../etc/passwd",
    "file:///etc/passwd",
    "\\\\evil.example\\share",
    "C:\\windows\\evil",
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "valueOf",
    "null",
    "undefined",
    "NaN",
    '{"schema_version": 99}',
    "[[[[[[[[",
    f"digraph {{ a [URL='javascript:{EVIL}'] }}",
    '"] } evil [label="',
]
CHARACTERS = [
    "",
    " ",
    "\t\t\t",
    "\n\n\n",
    "\r\n\r",
    "\0",
    "".join(map(chr, range(32))),
    "".join(map(chr, range(0x7F, 0xA0))),
    "\x1b[31mred\x1b]0;title\x07",
    "\u2028line\u2029paragraph",
    "\u202eright to left\u202c",
    "\u2066isolated\u2069 \u2067other\u2069",
    "\u200b\u200c\u200d\ufeff zero width",
    "שלום עולם",
    "مرحبا بالعالم",
    "e" + "\u0301" * 300,
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "\ud800 alone",
    "\udcff escaped byte",
    "\uffff\ufffe",
    "\U0001d4b3" * 50,
    "#",
    "a#b#c:d:e",
    "x" * MEGABYTE,
]
PANES: list[tuple[Pane, Language]] = [
    ("captured", "python"),
    ("forward", "python"),
    ("kernel", "cpp"),
    ("bytecode", "bytecode"),
]
STRINGS = [*MARKUP, *CODE, *CHARACTERS]


def hostile_record() -> Record:
    """Returns a record with a frame and a compile for each string, used for all text that comes from the user."""
    record = Record(title=STRINGS[0], created=STRINGS[1])
    for number, text in enumerate(STRINGS):
        _add(record, number, text)
    record.notes += STRINGS[:3]
    record.versions["<b>torch</b>"] = STRINGS[3]
    difference = Difference("guard", STRINGS[4], 1, STRINGS[5], "changed", [STRINGS[6]], [STRINGS[7]])
    shared = [STRINGS[8]]
    record.comparison = Comparison(
        STRINGS[0], STRINGS[1], [Total(STRINGS[2], 1, 2)], [difference], {"x": STRINGS[3]}, shared
    )
    return record


def _add(record: Record, number: int, text: str) -> None:
    name = f"{text[:MEGABYTE]}{number}"
    source = Artifact(f"src:{number}", "source", name, "python", text, [Span("1", 1, 1)])
    record.sources.append(source)
    record.labels[name] = text
    line = source.item("1")
    frame = record.frame(text, name, 1, "root")
    frame.calls = 1
    compile_ = record.compile(frame, "cpp")
    compile_.outcome = "compiled"
    compile_.reason = text
    node = Node(f"n{text[:5000]}", "call_function", text, [2, text[:5000]], text[:5000], text[:5000], 8, text[:5000])
    graph = Graph([node, Node("plain", "call_function", "aten.cos.default")], [[node.key, "plain"]])
    for pane, language in PANES:
        has_graph = graph if language == "python" else None
        compile_.artifact(pane, f"{pane}{text[:5000]}", language, text, [Span(node.key, 1, 1)], has_graph)
    captured, forward, kernel, _ = (artifact.item(node.key) for artifact in compile_.artifacts)
    compile_.artifact("guards", "guards", "python", text, [Span("g0", 1, 1)])
    compile_.link(captured, [line], text)
    compile_.link(forward, [captured], text)
    compile_.link(kernel, [forward], text)
    compile_.guards.append(Guard("g0", text, text, text, text, line, 1.0, sizes=[3]))
    failed = FailedGuard(text, text, text, text, "relation", text, text, line, [0], text)
    compile_.cause = recompile([MissedEntry(compile_.id, [failed, failed])] * 2, checked=())
    compile_.symbols.append(Symbol("s0", text, 3, text, 2, None, line, text, text, line))
    compile_.breaks.append(GraphBreak("b0", text, text, text, [StackLine(name, 1, text, text, line)]))
    compile_.expansions.append(Expansion(captured, text, [forward], [], [text], [text]))
    compile_.partition = Partition([ValueDecision(forward, "saved", 8, text)], 1, 8, 1, 8)
    compile_.refusals.append(FusionRefusal(text, text, text, text))
    compile_.kernels.append(Kernel("k0", text, "cpp", "forward", kernel, 8, 8))
    with compile_.step("capture", text) as event:
        event.detail = text
    compile_.fail("build", text, text)
