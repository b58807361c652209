// Before the first paint: the colours the reader chose, if any; otherwise the system's.
"use strict";
try {
  const chosen = localStorage.getItem("rolecall-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // a browser that keeps nothing: the system's colours
}
