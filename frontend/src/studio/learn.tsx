/** What calibration is, on the reader's own predictions. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { calibrationError, equalWidth, runningSums } from "../bins";
import { wordsOf } from "../claims";
import { Densities, Reliability } from "../charts";
import { Slider } from "../explorer";
import { number, share, whole } from "../plot";
import type { Answer } from "./client";

const MOST = 40;

/** Bins from few to many, by hand or as a film. */
function Film({ answer }: { answer: Answer }) {
  const view = answer.charts.views[0], sums = useMemo(() => runningSums(view.cells), [view]), words = wordsOf(view);
  const [bins, setBins] = useState(4), [plays, play] = useState(false);
  useEffect(() => {
    if (!plays) return undefined;
    const timer = setInterval(() => setBins((now) => { if (now >= MOST) { play(false); return now; } return now + 1; }), 120);
    return () => clearInterval(timer);
  }, [plays]);
  const made = equalWidth(sums, bins);
  return (
    <Reliability name="film" title={`${words.title}, in ${bins} bins`} words={words} bins={made} alt={`Reliability diagram in ${bins} bins, calibration error ${number(calibrationError(made))}.`}
      below={<div class="controls"><Slider label="Bins" min={2} max={MOST} value={bins} text={String(bins)} onMove={(value) => { play(false); setBins(value); }} />
        <button type="button" onClick={() => { if (bins >= MOST) setBins(2); play(!plays); }}>{plays ? "Pause" : "Play"}</button>
        <p class="value">ECE <output>{number(calibrationError(made))}</output></p></div>} />
  );
}

export function Learn({ answer, onCalibrate }: { answer: Answer; onCalibrate: () => void }) {
  const view = answer.charts.views[0], { corp, density } = view, words = wordsOf(view), sums = useMemo(() => runningSums(view.cells), [view]);
  const fullest = equalWidth(sums, 10).reduce((most, bin) => (bin.count > most.count ? bin : most));
  const separated = answer.document.risk ? answer.document.risk.auroc.value : density.auroc;
  const error = answer.document.metrics.ece, gap = fullest.confidence - fullest.accuracy;
  return (
    <section class="learn">
      <h2>{words.of ? "1. A probability is a claim about a frequency" : "1. Confidence is a claim about accuracy"}</h2>
      <div class="columns"><div>
        <p>{words.of
          ? <>{share(fullest.count / view.n)} of {whole(answer.document.n)} samples have a probability{words.of} between {share(fullest.low, 0)} and {share(fullest.high, 0)}. It is {share(fullest.confidence)} on average, and {share(fullest.accuracy)} of them are{words.of.slice(3)}</>
          : <>{share(fullest.count / view.n)} of {whole(answer.document.n)} samples have a confidence between {share(fullest.low, 0)} and {share(fullest.high, 0)}. On them the model is {share(fullest.confidence)} sure on average, and right {share(fullest.accuracy)} of the time</>}{Math.abs(gap) < 0.01 ? ": it keeps its word there." : gap > 0 ? ": it claims too much." : ": it claims too little."}</p>
        <p>A model is calibrated if this holds everywhere: {words.of ? `of all samples with a probability of 80 %, 80 % are${words.of.slice(3)}. A bar is the share of such a group that is,` : "of all predictions made with 80 % confidence, 80 % are right. A bar is the accuracy of such a group,"} the dashed line the claim, and what lies between them is the calibration error, averaged into one number, the ECE. Few bins let errors cancel; many leave each with few samples. Move them, or play.</p></div>
        <Film answer={answer} /></div>
      <h2>2. Some error is chance</h2>
      <p>Even a perfectly calibrated model with these {words.of ? "probabilities" : "confidences"} would not score 0 on {whole(answer.document.n)} samples: by chance alone its ECE in {answer.charts.n_bins} bins would be about <output>{number(error.floor)}</output>. Here it is <output>{number(error.value)}</output>, with a 95 % interval from {number(error.low)} to {number(error.high)}. {(error.p ?? 1) <= 0.05 ? `Chance would reach that in ${error.p! < 0.002 ? "fewer than 2 of 1,000" : `${share(error.p!)} of`} such samples: the error is real.` : "That is no more than chance explains."} An ECE without such a floor cannot be read.</p>
      <h2>3. Calibrated does not mean useful</h2>
      <div class="columns"><div>
        <p>A model that always says “{share(view.accuracy)}” is calibrated on these samples, and useless: it does not separate {words.of ? "the classes" : "right from wrong predictions"}. Yours does{separated !== null && <>: {words.of ? `a sample that is${words.of.slice(3)} has the higher probability than one that is not` : "a right prediction has the higher confidence than a wrong one"} in <output>{share(separated)}</output> of pairs (AUROC; 50 % is guessing)</>}.</p>
        <p>The {words.score}, {number(corp.uncertainty - corp.discrimination + corp.miscalibration)}, has both parts: uncertainty {number(corp.uncertainty)}, that of the useless model; less discrimination <output>{number(corp.discrimination)}</output>, what separating gains; plus miscalibration <output>{number(corp.miscalibration)}</output>, what wrong claims lose. Calibration can remove the last part only. A method that lowers it and the discrimination too has made the model worse.</p></div>
        <Densities density={density} /></div>
      <h2>4. What to do</h2>
      <p>Fit a map from the model's scores to better ones, on samples that the model was not trained on, and compare on others still. Select by a proper score (log-loss, Brier), not by the ECE.</p>
      <p><button type="button" class="primary" onClick={onCalibrate}>Calibrate</button></p>
    </section>
  );
}
