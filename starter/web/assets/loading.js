// Before everything else: a part of the page that did not arrive is asked for again, instead of leaving it blank.
(() => {
  const KEY = 'codehub.reloaded';
  const MOST = 5;
  const WITHIN = 60_000;

  addEventListener('error', ({ target }) => {
    const isPart = target instanceof HTMLScriptElement || (target instanceof HTMLLinkElement && target.rel === 'stylesheet');
    if (!isPart) return;
    let tries = [];
    try {
      tries = JSON.parse(sessionStorage.getItem(KEY) ?? '[]').filter((at) => Date.now() - at < WITHIN);
      if (tries.length >= MOST) return;
      sessionStorage.setItem(KEY, JSON.stringify([...tries, Date.now()]));
    } catch {
      // A browser that keeps nothing can't count: it is left to the person.
      return;
    }
    setTimeout(() => location.reload(), 300 * (tries.length + 1));
  }, true);
})();
