// Runs before the first paint, so that a remembered theme does not flash. Where storage is refused, the system decides.
(() => {
  try {
    const theme = localStorage.getItem("tenure-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {}
})();
