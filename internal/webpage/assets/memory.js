// What the viewer has chosen, remembered where the browser allows it.

const prefix = "rdmad.";

// recall returns what was remembered, or otherwise.
export function recall(key, otherwise) {
  try {
    return localStorage.getItem(prefix + key) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// remember keeps a string.
export function remember(key, value) {
  try {
    localStorage.setItem(prefix + key, value);
  } catch {
    // It is forgotten when the page is closed.
  }
}
