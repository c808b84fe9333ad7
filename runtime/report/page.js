// Draws every figure from the JSON beside it, and fits figures to the paper while printing.
"use strict";
const config = {
  displaylogo: false,
  responsive: true,
  modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
};
const plots = [...document.querySelectorAll(".plot")];
for (const plot of plots) {
  const figure = JSON.parse(document.getElementById(plot.id + "-data").textContent);
  Plotly.newPlot(plot, figure.data, figure.layout, config);
}
const PAPER_PX = 640;
window.addEventListener("beforeprint", () => {
  for (const plot of plots) Plotly.relayout(plot, { width: Math.min(plot.clientWidth, PAPER_PX) });
});
window.addEventListener("afterprint", () => {
  for (const plot of plots) Plotly.relayout(plot, { width: null, autosize: true });
});
