/** What a reader moves: bins, temperature, and the least confidence to answer at. */
import { useContext, useEffect, useMemo, useState } from "preact/hooks";
import { above, calibrationError, calibrationErrors, equalMass, equalWidth, type Kind, MOST_BINS, runningSums } from "./bins";
import { wordsOf } from "./claims";
import { BinFree, Curve, Densities, Reliability, RiskCoverage } from "./charts";
import { ClampingReport } from "./clamping";
import { DiagnosisCharts } from "./diagnosis";
import type { Charts, View } from "./data";
import { Pick } from "./pick";
import { number, share } from "./plot";
import { RiskCharts } from "./risk";
import { SliceCharts } from "./slices";
import { ClassTable, DifferenceTable, MethodTable } from "./tables";
import { TrendCharts } from "./trend";

export function Slider(props: { label: string; min: number; max: number; value: number; text: string; onMove: (value: number) => void; disabled?: boolean }) {
  return (
    <label class="slider"><span>{props.label}</span>
      <input type="range" min={props.min} max={props.max} value={props.value} disabled={props.disabled} aria-label={props.label} aria-valuetext={props.text} onInput={(event) => props.onMove(Number(event.currentTarget.value))} />
      <output>{props.text}</output></label>
  );
}

/** A value that follows another when there is time: what depends on it does not hold a slider back. */
function useLater<T>(value: T): T {
  const [later, follow] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => follow(value), 60);
    return () => clearTimeout(timer);
  }, [value]);
  return later;
}

export const KINDS: [Kind, string][] = [["width", "equal width"], ["mass", "equal mass"], ["free", "bin-free"]];

/** What the charts show need not stand in the tables below them. */
export function markPlace(place: Element, charts: Charts): void {
  place.classList.toggle("has-methods", charts.methods.length > 0);
  place.classList.toggle("has-differences", Boolean(charts.comparison));
}

/** All charts of a report: those of the chosen predictions, then methods and classes. */
export function Explorer({ charts }: { charts: Charts }) {
  const [chosen, choose] = useState(charts.views.length > 1 ? 1 : 0), view = charts.views[chosen] as View | undefined, picks = useContext(Pick);
  return (
    <>
      {charts.clamping && <ClampingReport clamping={charts.clamping} />}
      {charts.trend && <TrendCharts trend={charts.trend} />}
      {charts.diagnosis && <DiagnosisCharts diagnosis={charts.diagnosis} />}
      {charts.comparison && <DifferenceTable compared={charts.comparison} />}
      {charts.views.length > 1 && (
        <fieldset class="views"><legend>Predictions shown</legend>{charts.views.map((one, i) => (
          <label><input type="radio" name="view" checked={i === chosen} onChange={() => choose(i)} /><span>{one.title}</span></label>))}</fieldset>)}
      {view?.positive && <RiskCharts key={`${view.name}-risk`} positive={view.positive} other={(chosen && charts.views[0].positive) || undefined} title={charts.views[0].title} />}
      {view?.positive && <h2>Predictions</h2>}
      {view && <ViewCharts key={view.name} view={view} first={chosen ? charts.views[0] : undefined} start={Math.min(charts.n_bins, MOST_BINS)} />}
      {charts.slices && <SliceCharts slices={charts.slices} bins={Math.min(charts.n_bins, MOST_BINS)} onPick={picks?.slice} />}
      {charts.methods.length > 0 && <MethodTable methods={charts.methods} baseline={charts.baseline} of={view ? wordsOf(view).of : ""} />}
      {view?.classes && <ClassTable key={`${view.name}-classes`} classes={view.classes} onPick={picks?.predicted} />}
    </>
  );
}

/** The charts of one set of predictions; the first set lies over them as a dashed line, if another is shown. */
export function ViewCharts({ view, first, start }: { view: View; first?: View; start: number }) {
  const [bins, setBins] = useState(Math.max(2, start)), [kind, setKind] = useState<Kind>("width"), [least, setLeast] = useState(90);
  const words = wordsOf(view), { corp } = view;
  const sums = useMemo(() => runningSums(view.cells), [view]), firstSums = useMemo(() => first && runningSums(first.cells), [first]);
  const made = kind === "mass" ? equalMass(view.ranks, view.n, bins) : equalWidth(sums, bins);
  const other = first && firstSums && (kind === "mass" ? equalMass(first.ranks, first.n, bins) : equalWidth(firstSums, bins));
  const confidences = useMemo(() => (view.confidences ? runningSums(view.confidences) : sums), [view]);
  const error = calibrationError(made), answered = above(confidences, least), wrong = answered.count ? answered.wrong / answered.count : 0;
  const over = view.confidence - view.accuracy;
  const means = `${words.claimed} ${share(view.confidence)}, ${words.observed} ${share(view.accuracy)}`;
  // The same element as before is not drawn again.
  const later = useLater(bins), densities = useMemo(() => <Densities density={view.density} />, [view]);
  const temperatures = useMemo(() => view.temperatures && <TemperatureCharts view={view} bins={later} />, [view, later]);
  const controls = (
    <div class="controls">
      <Slider label="Bins" min={2} max={MOST_BINS} value={bins} text={String(bins)} onMove={setBins} disabled={kind === "free"} />
      <fieldset class="kinds"><legend>Kind of bins</legend>{KINDS.map(([value, title]) => (
        <label><input type="radio" name={`kind-${view.name}`} value={value} checked={kind === value} onChange={() => setKind(value)} /><span>{title}</span></label>))}</fieldset>
      <p class="value">{kind === "free"
        ? <>Miscalibration <output data-value="miscalibration">{number(corp.miscalibration)}</output> (a calibrated model: about {number(corp.floor)}) − discrimination {number(corp.discrimination)} + uncertainty {number(corp.uncertainty)} = {words.score} {number(corp.score)}</>
        : <>{kind === "mass" ? "ACE" : "ECE"}{words.of} <output data-value="ece">{number(error)}</output> in {bins} bins of {kind === "mass" ? "equal mass" : "equal width"}{first && `; dashed: ${first.title}`}</>}</p>
    </div>);
  return (
    <>
      <div class="charts three">
        {kind === "free"
          ? <BinFree words={words} corp={corp} other={first?.corp} below={controls}
              alt={`Isotonic reliability curve with a consistency band. ${means}. Miscalibration ${number(corp.miscalibration)}, discrimination ${number(corp.discrimination)}, uncertainty ${number(corp.uncertainty)}.`} />
          : <Reliability name="reliability" title={words.title} words={words} bins={made} other={other} below={controls}
              alt={`Reliability diagram, ${bins} bins of ${kind === "mass" ? "equal mass" : "equal width"}. ${means}: ${Math.abs(over) < 0.005 ? "about equal" : over > 0 ? words.over : words.under}. Calibration error ${number(error)}.`} />}
        {densities}
        <RiskCoverage risk={view.risk} other={first?.risk} n={view.n} dot={answered.count ? [answered.count / view.n, wrong] : null} below={
          <>
            <div class="controls"><Slider label="Answer above" min={0} max={99} value={least} text={`${least} %`} onMove={setLeast} /></div>
            <p class="reading answer" aria-live="polite">{answered.count
              ? <>Answer only above {least} %: <output data-value="coverage">{share(answered.count / view.n)}</output> of samples, <output data-value="risk">{share(wrong)}</output> errors. Dotted: the best ranking{first && `; dashed: ${first.title}`}; shaded: 95 % intervals.</>
              : <>No sample has a confidence above {least} %.</>}</p>
          </>} />
      </div>
      {temperatures}
    </>
  );
}

/** What one temperature does to log-loss, calibration error and the reliability diagram. */
export function TemperatureCharts({ view, bins }: { view: View; bins: number }) {
  const grid = view.temperatures!, ones = grid.temperature.indexOf(1), best = grid.fitted === null ? -1 : grid.temperature.indexOf(grid.fitted);
  const [place, move] = useState(best < 0 ? ones : best);
  const all = useMemo(() => grid.cells.map(runningSums), [grid]);
  const errors = useMemo(() => calibrationErrors(all, bins), [all, bins]);
  const temperature = grid.temperature[place].toFixed(2), made = equalWidth(all[place], bins), words = wordsOf(view);
  return (
    <section class="temperature">
      <h2>One temperature</h2>
      <p class="legend">Logits divided by a temperature: above 1 softens the confidence, below 1 sharpens it. The predicted classes stay the same. The fitted one has the lowest log-loss on these very samples; to use one, fit it on others.{grid.uniform_share > 0 && ` Probabilities of 0 have no logits: as temperature scaling does, a share of ${share(grid.uniform_share)} of the uniform distribution is mixed in first, so that the numbers at temperature 1 are not those of the predictions as given.`}</p>
      <div class="controls wide">
        <Slider label="Temperature" min={0} max={grid.temperature.length - 1} value={place} text={temperature} onMove={move} />
        <button type="button" onClick={() => move(ones)} disabled={place === ones}>{grid.uniform_share > 0 ? "1" : "1 (uncalibrated)"}</button>
        {best >= 0 && <button type="button" onClick={() => move(best)} disabled={place === best}>{grid.fitted!.toFixed(2)} (fitted)</button>}
      </div>
      <div class="charts three">
        <Reliability name="reliability-at-temperature" title={words.of ? `Reliability${words.of} at temperature ${temperature}` : `Accuracy at temperature ${temperature}`} words={words} bins={made}
          alt={`Reliability diagram at temperature ${temperature}, ${bins} bins. Calibration error ${number(errors[place])}.`} />
        <Curve name="nll" title="Log-loss at each temperature" yTitle="Log-loss" temperatures={grid.temperature} values={grid.nll} fitted={grid.fitted} place={place} onMove={move}
          below={<p class="reading">Log-loss <output data-value="nll-at">{number(grid.nll[place])}</output> at temperature {temperature}; {number(grid.nll[ones])} at 1.</p>} />
        <Curve name="ece" title={`ECE${words.of} at each temperature, ${bins} bins`} yTitle="ECE" temperatures={grid.temperature} values={errors} fitted={grid.fitted} place={place} onMove={move}
          below={<p class="reading">ECE{words.of} <output data-value="ece-at">{number(errors[place])}</output> at temperature {temperature}; {number(errors[ones])} at 1.</p>} />
      </div>
    </section>
  );
}
