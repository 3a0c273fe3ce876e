/** The numbers behind the charts, as calibrant.report.interactive writes them: sums over samples, never samples. */

/** Samples counted between neighbouring fractions i / b with b up to 100, so that bins of every such b are exact. */
export interface Cells {
  step: number[]; // from the previous occupied cell to this one
  count: number[];
  wrong: number[];
  offset: number[]; // summed confidence above the cell's lower edge, in units
  unit: number;
}
/** Sums over samples in rising order of confidence, between the ranks where some equal-mass bin ends. */
export interface Ranks { step: number[]; confidence: number[]; correct: number[] }
/** The isotonic (CORP) curve, and the band within which a calibrated model would lie. */
export interface Corp {
  confidence: number[]; curve: number[]; lower: number[]; upper: number[];
  score: number; miscalibration: number; discrimination: number; uncertainty: number; // of the Brier score
  floor: number; p: number; // miscalibration of a calibrated model, and how often it has as much
}
export interface Density {
  right: number[]; wrong: number[]; // at evenly spaced confidences from 0 to 1
  n_right: number; n_wrong: number; auroc: number | null;
}
export interface Risk { coverage: number[]; risk: number[]; low: number[]; high: number[]; optimal: number[]; aurc: number }
export interface Temperatures { temperature: number[]; nll: number[]; cells: Cells[]; fitted: number | null; uniform_share: number }
export interface Classes { name: string[]; samples: number[]; predicted: number[]; confidence: number[]; correct: number[]; weight: number[] | null; effective: number[] | null }
/** How often the second of two classes occurs at each probability of it, and the net benefit of acting from a threshold of that. */
export interface Positive {
  name: string | null; tenths: number[][]; // of each: predicted, observed, its bounds, lowest and highest probability, share
  curve: { risk: number[]; observed: number[]; low: number[]; high: number[] } | null;
  decisions: { threshold: number[]; all: number[]; benefit: number[]; low: (number | null)[]; high: (number | null)[]; treated: number[]; found: (number | null)[]; right: (number | null)[] };
}
/** One set of predictions. Of two classes, confidence, accuracy and reliability are those of the probability of the second. */
export interface View {
  name: string; title: string; n: number; accuracy: number; confidence: number;
  cells: Cells; ranks: Ranks; corp: Corp; confidences: Cells | null; // of the predicted class, where the cells are not
  density: Density; risk: Risk;
  temperatures: Temperatures | null; classes: Classes | null; positive: Positive | null;
}
export type Side = "better" | "worse" | "alike";
export interface Dot { value: number; low: number | null; high: number | null; side: Side }
export interface Method {
  name: string; title: string; nll_change: Dot; ece: Dot; accuracy_change: Dot | null; recommended: boolean;
}
export interface Estimate { value: number; low: number | null; high: number | null }
export type Part = "none" | "temperature" | "delta" | "both"; // of a clamped network: δ = 0 and T = 1, T alone, δ alone, both
/** An image by rows, or by channels and rows. */
export type Planes = number[][] | number[][][];
export interface Sample {
  row: number; label: number; image?: Planes | null; moved?: Planes; // moved: with δ, if not the sum
  shown?: number[]; // the classes that the probabilities are of, if not all
  probs: Partial<Record<Part, number[]>>;
}
export interface Trial { strength: number | null; change: number; standard_error: number; norm: number } // null: infinite, δ = 0
export interface Clamping {
  classes: string[]; parts: Partial<Record<Part, Record<string, Estimate>>>; samples: Sample[];
  delta: { values: Planes | number[]; names?: string[]; factor: number; limit: number; norm: number; low: number; high: number };
  temperatures: { both: number | null; alone: number | null }; path: Trial[]; strength: number | null; n: { calibration: number; test: number };
}
/** A number over runs. */
export interface Spread { mean: number | null; std: number | null; lowest: number | null; highest: number | null; values: (number | null)[] }
export interface UnderMap { ece: Spread; auroc: Spread; reliability?: Spread; refinement?: Spread; gap: (number | null)[]; density: Density | null }
export interface Candidate {
  name: string; words: string; seeds: number[]; folders: string[]; accuracy: Spread; temperature: Spread; optimal: Spread;
  overall: Side | "mixed" | null; sides: Partial<Record<"ece" | "raw" | "auroc" | "accuracy", Side>>; // against the baseline
  maps: Record<string, UnderMap>;
}
export interface Series { name: string; x: number[]; mean: (number | null)[]; lowest?: (number | null)[]; highest?: (number | null)[] }
/** Lines over what varies: one group of them is shown at a time. */
export interface CurveGroups { title: string; x_title: string; log: boolean; over: string; groups: { title: string; share: boolean; series: Series[] }[]; names?: string[] }
export interface Diagnosis { baseline: string; maps: string[]; n: number; candidates: Candidate[]; curves: CurveGroups[] }
/** The samples with one value of a column; cells only of the worst of a column. */
export interface Slice {
  column: string; value: string; n: number; weight: number | null; accuracy: number; confidence: number; subject: string; of_class: boolean; ece: Estimate; floor: number | null; p: number | null; miscalibrated: boolean;
  to_rest: { value: number | null; low: number | null; high: number | null; p: number | null }; side: Side; cells: Cells | null;
}
/** Metrics over time; the change is that of a period in which one changed beyond chance. */
export interface TrendMetric { name: string; title: string; lower_is_better: boolean | null; levels: (number | null)[]; values: { value: number | null; low: number | null; high: number | null; change: { difference: number; p: number; side: Side } | null }[] }
export interface Trend { periods: { name: string; n: number }[]; metrics: TrendMetric[] }
/** A metric of this model and of its baseline on the same samples. */
export interface Change { name: string; title: string; lower_is_better: boolean | null; baseline: number; candidate: number; value: number; low: number | null; high: number | null; p: number | null; side: Side }
export interface Compared { baseline: string; words: string; main: number; metrics: Change[] } // the main metrics first
export interface Charts { schema: string; n_bins: number; views: View[]; methods: Method[]; baseline: string; comparison?: Compared; slices?: Slice[]; clamping?: Clamping; diagnosis?: Diagnosis; trend?: Trend }

/** Several reports by the id of their element; equal temperatures stand once in shared, views have their place. */
export interface Several { shared: Temperatures[]; reports: Record<string, Omit<Charts, "views"> & { views: (Omit<View, "temperatures"> & { temperatures: number | null })[] }> }

/** Decode base64 of a deflated JSON document. */
export async function decode(text: string): Promise<Charts | Several> {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text()) as Charts | Several;
}

export function oneOf({ shared, reports }: Several, name: string): Charts | undefined {
  const found = reports[name];
  return found && { ...found, views: found.views.map((view) => ({ ...view, temperatures: view.temperatures === null ? null : shared[view.temperatures] })) };
}
