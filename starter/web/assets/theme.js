// Before the first paint, so that nothing flashes: the theme a person chose, or the system's.
(() => {
  const KEY = 'codehub.theme';
  const themes = ['system', 'light', 'dark'];

  const kept = () => {
    try {
      const value = localStorage.getItem(KEY);
      return themes.includes(value) ? value : 'system';
    } catch {
      return 'system';
    }
  };
  const apply = (theme) => { document.documentElement.dataset.theme = theme; };

  apply(kept());
  window.codehubTheme = {
    now: kept,
    next() {
      const theme = themes[(themes.indexOf(kept()) + 1) % themes.length];
      try { localStorage.setItem(KEY, theme); } catch { /* a browser that keeps nothing */ }
      apply(theme);
      return theme;
    },
  };
})();
