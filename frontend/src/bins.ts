/** Reliability in bins from sums over cells: a redraw costs a few hundred additions, however many samples there are. */
import type { Cells, Ranks } from "./data";

export const MOST_BINS = 100;
export type Kind = "width" | "mass" | "free";
export interface Bin { low: number; high: number; count: number; confidence: number; accuracy: number; band: [number, number] }
/** Running sums over the cells: entry i holds the samples with a confidence up to the fraction i. */
export interface Sums { count: Float64Array; correct: Float64Array; confidence: Float64Array; n: number }

/** Fractions i / b in 0..1 for every b up to MOST_BINS, rising, without repetition (a Farey sequence). */
export const FRACTIONS: number[] = [0];
for (let [a, b, c, d] = [0, 1, 1, MOST_BINS]; c <= MOST_BINS; ) {
  const k = Math.floor((MOST_BINS + b) / d);
  [a, b, c, d] = [c, d, k * c - a, k * d - b];
  FRACTIONS.push(a / b);
}
const PLACE = new Map(FRACTIONS.map((fraction, place) => [fraction, place]));
const places = (bins: number): number[] => Array.from({ length: bins + 1 }, (_, i) => PLACE.get(i / bins)!);

export function runningSums(cells: Cells): Sums {
  const [count, correct, confidence] = [0, 0, 0].map(() => new Float64Array(FRACTIONS.length));
  let cell = -1;
  cells.step.forEach((step, i) => {
    cell += step;
    count[cell + 1] = cells.count[i];
    correct[cell + 1] = cells.count[i] - cells.wrong[i];
    confidence[cell + 1] = cells.count[i] * FRACTIONS[cell] + cells.offset[i] * cells.unit;
  });
  for (const sums of [count, correct, confidence]) for (let i = 1; i < sums.length; i++) sums[i] += sums[i - 1];
  return { count, correct, confidence, n: count[count.length - 1] };
}

/** Wilson's 95 % interval of a share. */
export function wilson(hits: number, count: number): [number, number] {
  const z = 1.959963984540054, share = hits / count, scale = 1 + (z * z) / count;
  const middle = (share + (z * z) / (2 * count)) / scale;
  const half = (z / scale) * Math.sqrt((share * (1 - share)) / count + (z * z) / (4 * count * count));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

function makeBin(low: number, high: number, count: number, confidence: number, correct: number): Bin {
  return { low, high, count, confidence: confidence / count, accuracy: correct / count, band: wilson(correct, count) };
}

export function equalWidth(sums: Sums, bins: number): Bin[] {
  const made: Bin[] = [], ends = places(bins);
  for (let i = 0; i < bins; i++) {
    const a = ends[i], b = ends[i + 1];
    const count = sums.count[b] - sums.count[a];
    if (count > 0) made.push(makeBin(i / bins, (i + 1) / bins, count, sums.confidence[b] - sums.confidence[a], sums.correct[b] - sums.correct[a]));
  }
  return made;
}

/** Bins of equally many samples, as the adaptive calibration error has them. */
export function equalMass(ranks: Ranks, n: number, bins: number): Bin[] {
  const made: Bin[] = [];
  let place = 0, rank = 0;
  for (let i = 1; i <= bins; i++) {
    const end = Math.floor((i * n) / bins), start = rank;
    let confidence = 0, correct = 0;
    for (; rank < end; place++) {
      rank += ranks.step[place]; confidence += ranks.confidence[place]; correct += ranks.correct[place];
    }
    if (rank > start) made.push(makeBin(0, 1, rank - start, confidence, correct));
  }
  // Neighbours meet half-way between their mean confidences.
  made.forEach((bin, i) => {
    if (i) bin.low = made[i - 1].high = (made[i - 1].confidence + bin.confidence) / 2;
    else bin.low = Math.max(0, bin.confidence - (made.length > 1 ? made[1].confidence - bin.confidence : 1) / 2);
  });
  return made;
}

/** Mean distance between confidence and accuracy, weighted by the samples of a bin. */
export function calibrationError(bins: Bin[]): number {
  let gap = 0, n = 0;
  for (const bin of bins) { gap += bin.count * Math.abs(bin.accuracy - bin.confidence); n += bin.count; }
  return gap / n;
}

/** The same of equal-width bins, for many sets of sums at once. */
export function calibrationErrors(all: Sums[], bins: number): number[] {
  const ends = places(bins);
  return all.map(({ correct, confidence, n }) => {
    let gap = 0;
    for (let i = 0; i < bins; i++) gap += Math.abs(correct[ends[i + 1]] - correct[ends[i]] - confidence[ends[i + 1]] + confidence[ends[i]]);
    return gap / n;
  });
}

/** Samples with a confidence above a whole percentage, and the wrong ones among them. */
export function above(sums: Sums, percentage: number): { count: number; wrong: number } {
  const place = PLACE.get(percentage / 100)!;
  const count = sums.n - sums.count[place], correct = sums.correct[sums.correct.length - 1] - sums.correct[place];
  return { count, wrong: count - correct };
}
