// Text whose contrast with its ground is below WCAG 2 AA (4.5 to 1), as {what: ratio}. Figures are left out.
const parse = (css) => {
  const numbers = css.match(/[\d.]+/g).map(Number);
  return numbers.length < 4 ? [...numbers, 1] : numbers;
};
const luminance = (colour) =>
  colour
    .slice(0, 3)
    .map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = parse(getComputedStyle(e).backgroundColor);
    if (colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const poor = {};
for (const e of document.querySelectorAll("main *, header *")) {
  const hasText = Array.from(e.childNodes).some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!hasText || e.closest("svg") || !e.checkVisibility()) continue;
  const [a, b] = [luminance(parse(getComputedStyle(e).color)), luminance(ground(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor[`${e.tagName}.${e.className} ${e.textContent.trim().slice(0, 20)}`] = ratio;
}
return poor;
