/** Words for reliability diagrams: of confidence or, of two classes, of the probability of the second. */
import type { Bin } from "./bins";
import type { View } from "./data";
import { share, whole } from "./plot";

export interface Words {
  title: string; x: string; y: string; claimed: string; observed: string;
  over: string; under: string; // on average
  less: string; // what hatching shows
  of: string; // after the name of an error
  score: string;
  bin: (bin: Bin) => string;
}

const isOne = (bin: Bin) => Math.round(bin.count) === 1, counted = (bin: Bin) => `${whole(Math.round(bin.count))} ${isOne(bin) ? "sample" : "samples"}`;

const OF_CONFIDENCE: Words = {
  title: "Accuracy at each confidence", x: "Confidence, %", y: "Accuracy, %", claimed: "Mean confidence", observed: "accuracy",
  over: "overconfident", under: "underconfident", less: "less often right than claimed", of: "", score: "Brier score of the confidence",
  bin: (bin) => `Confidence ${share(bin.low)} to ${share(bin.high)}: ${counted(bin)} ${isOne(bin) ? "claims" : "claim"} ${share(bin.confidence)} and ${isOne(bin) ? "is" : "are"} right ${share(bin.accuracy)} of the time`,
};

const ofClass = (name: string): Words => ({
  title: `How often ${name} occurs at each probability`, x: `Probability of ${name}, %`, y: `Samples that are ${name}, %`, claimed: "Predicted", observed: "observed",
  over: "probabilities too high on average", under: "probabilities too low on average", less: "less often observed than predicted", of: ` of ${name}`, score: "Brier score of that probability",
  bin: (bin) => `Probability ${share(bin.low)} to ${share(bin.high)}: of ${counted(bin)} ${share(bin.confidence)} are predicted to be ${name}, and ${share(bin.accuracy)} are`,
});

export const nameOf = (name: string | null): string => (name === null ? "class 1" : `“${name.length > 24 ? `${name.slice(0, 23)}…` : name}”`);
export const wordsOf = (view: View): Words => (view.positive ? ofClass(nameOf(view.positive.name)) : OF_CONFIDENCE);
