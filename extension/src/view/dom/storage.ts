/**
 * User settings in the browser's local storage, shared by all explorers. Nothing is saved where storage is not
 * available.
 */

const PREFIX = "cutaway.";

/** Returns the setting `name`, or null if it is not stored or `isValid` rejects it. */
export function loadSetting<T>(name: string, isValid: (value: unknown) => value is T): T | null {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(PREFIX + name) ?? "null");
    return isValid(value) ? value : null;
  } catch {
    return null;
  }
}

/** Stores a setting as JSON. */
export function saveSetting(name: string, value: unknown): void {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // a file opened from disk, or a private window, may have no storage
  }
}

export function isString(value: unknown): value is string {
  return typeof value === "string";
}

export function isStringList(value: unknown): value is string[] {
  return Array.isArray(value) && value.length > 0 && value.every(isString);
}
