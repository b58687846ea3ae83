/** What the reader chose last, for the next explorer in this browser; nothing where the page may keep nothing. */

const PREFIX = "cutaway.";

/** What was remembered as `name`, where it is still of the kind that `fits` says. */
export function recall<T>(name: string, fits: (value: unknown) => value is T): T | null {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(PREFIX + name) ?? "null");
    return fits(value) ? value : null;
  } catch {
    return null;
  }
}

export function remember(name: string, value: unknown): void {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // a file opened from a disk, or a private window, may have no storage
  }
}

export function isWord(value: unknown): value is string {
  return typeof value === "string";
}

export function isWords(value: unknown): value is string[] {
  return Array.isArray(value) && value.length > 0 && value.every(isWord);
}
