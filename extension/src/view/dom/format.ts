/** Texts for numbers, sizes, times and tensor types. */

/** How a condition that an absolute value is finite ends: with the largest float64, as Python prints it. */
const IS_FINITE = " <= 1.7976931348623157e+308";

/** An expression over sources as the user would write it: `x.size(0)` for `L['x'].size()[0]`. */
export function readable(text: string): string {
  const rooted = text.replace(/\b[LG]\[(['"])(\w+)\1\]/g, "$2").replace(/\.(size|stride)\(\)\[(\d+)\]/g, ".$1($2)");
  return rooted.replace(/\b__(stack|callee)\d*\b/g, "an intermediate value").replaceAll(IS_FINITE, " is finite");
}

/** Cuts a text off after `maxLength` characters, the ellipsis included. */
export function shorten(text: string, maxLength: number): string {
  return text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
}

/** "1 graph", "2 graphs". */
export function plural(count: number, noun: string, nouns = `${noun}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : nouns}`;
}

/** Formats a number of bytes: 2048 as "2.0 KiB". */
export function bytes(count: number): string {
  let value = count;
  let unit = "B";
  for (const next of ["KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
}

/** Formats a share, 0 to 1, as "38 %"; a part is never "0 %", and what is not all never "100 %". */
export function percent(share: number): string {
  const rounded = Math.round(100 * share);
  if (rounded === 0 && share > 0) return "<1 %";
  return rounded === 100 && share < 1 - 1e-9 ? ">99 %" : `${rounded} %`; // sums of parts are not exact
}

/** Formats nanoseconds: 1.2e6 as "1.20 ms". */
export function duration(ns: number): string {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toPrecision(3)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toPrecision(3)} ms`;
  return `${(ns / 1e9).toPrecision(3)} s`;
}

/** Formats seconds: 0.0019 as "1.90 ms". */
export function seconds(time: number): string {
  return duration(time * 1e9);
}

const DTYPES: { [start: string]: string } = { float: "f", bfloat: "bf", complex: "c", int: "i", uint: "u" };

/** Formats a tensor type as PyTorch prints it: "float32" and [8, 10] as "f32[8, 10]". */
export function tensorType(dtype: string | null, shape: (number | string)[] | null): string {
  if (dtype === null) return "";
  const [, letters, digits] = /^(\D*)(.*)$/.exec(dtype) ?? ["", dtype, ""];
  return `${DTYPES[letters] ?? letters}${digits}${shape ? `[${shape.join(", ")}]` : ""}`;
}

/** Formats a relative error: "4.7e-7", "0", or "not finite" for null. */
export function errorText(error: number | null): string {
  if (error === null) return "not finite";
  return error === 0 ? "0" : error.toExponential(1);
}

const UNITS: { [unit: string]: number } = {
  ...{ "": 1, "%": 1, x: 1, ns: 1, µs: 1e3, ms: 1e6, s: 1e9, min: 6e10 },
  ...{ B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 },
  ...{ k: 1e3, M: 1e6, G: 1e9, T: 1e12 },
};

/** The value of a text that is a quantity, as the functions here format it: 2048 for "2.0 KiB"; null for other texts. */
export function quantity(text: string): number | null {
  const [, number, unit] = /^[+<>]?(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*([%A-Za-zµ]*)$/.exec(text) ?? [];
  const factor = UNITS[unit ?? ""];
  return number === undefined || factor === undefined ? null : Number(number.replaceAll(",", "")) * factor;
}
