// The colours that were chosen last, before anything is painted: this is not a module
// because modules run later.
"use strict";
(() => {
  try {
    const theme = localStorage.getItem("rdmad.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // No storage: the system's colours.
  }
})();
