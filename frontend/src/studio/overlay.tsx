/** Reliability curves of several methods in one diagram, chosen at will. */
import { useMemo, useState } from "preact/hooks";
import { calibrationError, equalMass, equalWidth, MOST_BINS, runningSums } from "../bins";
import { wordsOf } from "../claims";
import type { View } from "../data";
import { KINDS, Slider } from "../explorer";
import { Axes, Figure, heightOf, linear, MARGIN, number, path, percentTick, type Point } from "../plot";

type Kind = (typeof KINDS)[number][0];
const LOOKS = 8; // hues and dashes, which style.css repeats beyond; with another mark then
const RATIO = 0.8;

/** A small mark: shape tells curves apart where hue does not. */
function mark(shape: number, [x, y]: Point): string {
  const at = (dx: number, dy: number) => `${(x + dx).toFixed(1)} ${(y + dy).toFixed(1)}`;
  return [
    `M${at(-3, -3)}h6v6h-6z`, `M${at(0, -4)}L${at(4, 3)}H${(x - 4).toFixed(1)}z`, `M${at(0, -4)}L${at(4, 0)}L${at(0, 4)}L${at(-4, 0)}z`, `M${at(0, 4)}L${at(4, -3)}H${(x - 4).toFixed(1)}z`,
  ][(shape + Math.floor(shape / LOOKS)) % 4];
}

export function Overlay({ title = "Curves of several methods", views, start, chosen, onChoose }: { title?: string; views: View[]; start: number; chosen: string[]; onChoose: (names: string[]) => void }) {
  const [bins, setBins] = useState(Math.min(MOST_BINS, Math.max(2, start))), [kind, setKind] = useState<Kind>("width");
  const sums = useMemo(() => views.map((view) => runningSums(view.cells)), [views]), words = wordsOf(views[0]);
  const curves = views.flatMap((view, place) => {
    if (!chosen.includes(view.name)) return [];
    const { corp, ranks } = view;
    if (kind === "free") return [{ view, place, points: corp.confidence.map((value, i): Point => [value, corp.curve[i]]), error: corp.miscalibration }];
    const made = kind === "mass" ? equalMass(ranks, view.n, bins) : equalWidth(sums[place], bins);
    return [{ view, place, points: made.filter((bin) => bin.count >= 10 || kind === "mass").map((bin): Point => [bin.confidence, bin.accuracy]), error: calibrationError(made) }];
  });
  const errors = new Map(curves.map(({ view, error }) => [view.name, error])), what = { width: "ECE", mass: "ACE", free: "miscalibration" }[kind];
  const toggle = (name: string) => onChoose(views.map((view) => view.name).filter((one) => (one === name) !== chosen.includes(one)));
  return (
    <section class="overlay"><h2>{title}</h2>
      <div class="columns">
        <Figure name="overlay" title={words.title} ratio={RATIO}
          alt={`${curves.length} reliability curves. ${curves.map(({ view, error }) => `${view.title}: ${what} ${number(error)}`).join("; ")}.`}
          below={<>
            <p class="reading">The nearer to the diagonal, the better calibrated. {kind === "width" && "Bins of fewer than 10 samples are left out."}</p>
            <div class="controls"><Slider label="Bins" min={2} max={MOST_BINS} value={bins} text={String(bins)} onMove={setBins} disabled={kind === "free"} />
              <fieldset class="kinds"><legend>Kind of bins</legend>{KINDS.map(([value, title]) => <label><input type="radio" name="overlay-kind" value={value} checked={kind === value} onChange={() => setKind(value)} /><span>{title}</span></label>)}</fieldset></div></>}>
          {(width) => {
            const height = heightOf(width, RATIO), x = linear([0, 1], [MARGIN.left, width - MARGIN.right], percentTick), y = linear([0, 1], [height - MARGIN.bottom, MARGIN.top], percentTick);
            return <>
              <Axes x={x} y={y} width={width} height={height} xTitle={words.x} yTitle={words.y} />
              <line class="diagonal" x1={x.at(0)} y1={y.at(0)} x2={x.at(1)} y2={y.at(1)} />
              {curves.map(({ view, place, points }) => {
                const drawn = points.map(([a, b]): Point => [x.at(a), y.at(b)]);
                return <g key={view.name} class={`look look-${place % LOOKS}`} data-method={view.name}><path class="line" d={path(drawn)} />{kind !== "free" && bins <= 40 && <path class="mark" d={drawn.map((point) => mark(place, point)).join("")} />}</g>;
              })}
            </>;
          }}
        </Figure>
        <div class="curves" role="group" aria-label="Curves shown">
          {views.map((view, place) => (
            <label key={view.name}><input type="checkbox" checked={chosen.includes(view.name)} onChange={() => toggle(view.name)} />
              <svg class={`look look-${place % LOOKS}`} viewBox="0 0 36 12" width="36" height="12" aria-hidden="true"><path class="line" d="M0 6H36" /><path class="mark" d={mark(place, [18, 6])} /></svg>
              <span>{view.title}</span><output>{errors.has(view.name) ? number(errors.get(view.name)) : ""}</output></label>))}
          <p class="legend">{what === "miscalibration" ? `Miscalibration (CORP, of the ${words.score})` : `${what}${words.of} in ${bins} bins`} of each curve shown. On the samples evaluated.</p>
        </div>
      </div>
    </section>
  );
}
