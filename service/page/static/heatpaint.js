// Paints single cells of a heat map: a colour, and where there is room a sign that says the same.

const STEPS = [2, 4, 8, 16];
const ALPHAS = [0.1, 0.25, 0.45, 0.7, 1];
const SIGN_PX = 6; // a smaller cell has room for a colour alone

/** One cell: how far a value lies from its peers, or the sign of what is no value. */
export function paint(pen, look, { letter, score, left, top, width, height }) {
  const hasRoom = width >= SIGN_PX - 1 && height >= SIGN_PX;
  if (letter === "." || letter === "e") {
    pen.globalAlpha = ALPHAS[STEPS.filter((step) => (score ?? 0) >= step).length];
    pen.fillStyle = look.line;
    pen.fillRect(left, top, width, height);
    pen.globalAlpha = 1;
    if (letter === "e") line(pen, look.paper, [left, top + height, left + width, top]);
    return;
  }
  const isMild = letter === "m" || letter === "l";
  pen.fillStyle = isMild ? look.warn : look.bad;
  pen.globalAlpha = isMild ? 0.25 : 1;
  pen.fillRect(left, top, width, height);
  pen.globalAlpha = 1;
  if (!hasRoom) return;
  const [x, y, size] = [left + width / 2, top + height / 2, Math.min(width, height, 12) / 2 - 1];
  const ink = isMild ? look.warn : look.paper;
  if (letter === "n") strokes(pen, ink, [[x - size, y - size, x + size, y + size], [x - size, y + size, x + size, y - size]]);
  if (letter === "x") strokes(pen, ink, [[x - size, y - size / 2, x + size, y - size / 2], [x - size, y + size / 2, x + size, y + size / 2], [x + size / 2, y - size, x - size / 2, y + size]]);
  if (letter === "c") strokes(pen, ink, [[x - size / 2, y - size, x - size / 2, y + size], [x + size / 2, y - size, x + size / 2, y + size], [x - size, y - size / 2, x + size, y - size / 2], [x - size, y + size / 2, x + size, y + size / 2]]);
  if (letter === "l") strokes(pen, ink, [[x - size, y, x + size, y]]);
  if (letter === "m") strokes(pen, ink, [[x - 1, y, x + 1, y]]);
  if (letter === "+" || letter === "-") triangle(pen, ink, [x, y, letter === "+" ? size : -size]);
}

function strokes(pen, color, lines) {
  pen.lineWidth = 1.4;
  for (const each of lines) line(pen, color, each);
  pen.lineWidth = 1;
}

function triangle(pen, color, [x, y, size]) {
  pen.fillStyle = color;
  pen.beginPath();
  pen.moveTo(x, y - size);
  pen.lineTo(x + Math.abs(size), y + size);
  pen.lineTo(x - Math.abs(size), y + size);
  pen.fill();
}

/** A line in a colour. */
export function line(pen, color, [x0, y0, x1, y1]) {
  pen.strokeStyle = color;
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}
