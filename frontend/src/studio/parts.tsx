/** Small parts that several screens share. */
import { type ComponentChildren, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Charts } from "../data";
import { Explorer, markPlace } from "../explorer";
import { Pick as Picked, type Picks } from "../pick";
import { type Answer, type Job, run } from "./client";

export function Trouble({ message, onAgain, children }: { message: string; onAgain?: () => void; children?: ComponentChildren }) {
  return <p class="trouble" role="alert">{message}{onAgain && <> <button type="button" onClick={onAgain}>Try again</button></>}{children}</p>;
}

/** What a job does, how far it is, and a button to end it. */
export function Progress({ job, onCancel }: { job: Job<unknown> | null; onCancel: () => void }) {
  const words = !job || job.status === "waiting" ? "Waiting for a free worker" : job.message || "Working";
  return (
    <div class="progress" role="status">
      <span>{words} …</span>
      <progress max="1" value={job?.share ?? undefined} aria-label={words} />
      <button type="button" onClick={onCancel}>Cancel</button>
    </div>
  );
}

export interface Running<T> { job: Job<unknown> | null; done: { job: string; answer: T } | null; error: string; runs: boolean; cancel: () => void; again: () => void }
interface Stage<T> { of: string; job: Job<unknown> | null; done: Running<T>["done"]; error: string } // of: the task and arguments that it is about

/** Run a task whenever its arguments change; the previous one is cancelled. Without arguments nothing is run. */
export function useTask<T>(task: string, given: object | null): Running<T> {
  const of = JSON.stringify([task, given]), begun: Stage<T> = { of, job: null, done: null, error: "" };
  const [stage, set] = useState(begun), [attempt, retry] = useState(0), abort = useRef<AbortController | null>(null), now = stage.of === of ? stage : begun;
  useEffect(() => {
    set(begun);
    if (!given) return undefined;
    const controller = new AbortController(), reach = (next: Partial<Stage<T>>) => { if (!controller.signal.aborted) set({ ...begun, ...next }); };
    abort.current = controller;
    run<T>(task, given, (job) => reach({ job }), controller.signal).then((done) => reach({ done }), (reason: Error) => reach({ error: reason.message }));
    return () => controller.abort();
  }, [of, attempt]);
  return { ...now, runs: Boolean(given && !now.done && !now.error), cancel: () => { abort.current?.abort(); set({ ...begun, error: "Cancelled." }); }, again: () => retry(attempt + 1) };
}

/** A page that the server has rendered, with its charts: names are escaped there, and the policy forbids other scripts. */
export function Rendered({ html, charts, picks, children }: { html: string; charts: Charts; picks?: Picks; children?: ComponentChildren }) {
  const page = useRef<HTMLDivElement>(null), place = useRef<Element | null>(null);
  useEffect(() => {
    const now = page.current?.querySelector("#calibrant-charts") ?? null;
    now?.replaceChildren();
    if (now) markPlace(now, charts);
    place.current = now;
    return () => { if (now) render(null, now); };
  }, [html]);
  useEffect(() => { if (place.current) render(<Picked.Provider value={picks ?? null}><Explorer charts={charts} />{children}</Picked.Provider>, place.current); });
  return <div ref={page} dangerouslySetInnerHTML={{ __html: html }} />;
}

/** Links to files that a job has saved; figures in every format that there is. */
export function Files({ job, files, children }: { job: string; files: Record<string, string>; children?: (link: (name: string, title: string) => ComponentChildren) => ComponentChildren }) {
  const link = (name: string, title: string) => <a href={`/api/jobs/${job}/files/${encodeURIComponent(name)}`} download={name}>{title}</a>;
  const figures = new Map<string, [string, string][]>();
  for (const [name, title] of Object.entries(files)) { const form = /\.(png|svg|pdf)$/.exec(name)?.[1]; if (form) figures.set(title, [...(figures.get(title) ?? []), [name, form.toUpperCase()]]); }
  return (
    <>
      {children?.(link)}
      {figures.size > 0 && <><p>Figures:</p><ul class="files">{[...figures].map(([title, forms]) => <li key={title}><span>{title}: {forms.map(([name, form], i) => <>{i > 0 && ", "}{link(name, form)}</>)}</span></li>)}</ul></>}
    </>
  );
}

export function Lines({ lines, title = "The same on the command line and in Python" }: { lines: Answer["lines"]; title?: string }) {
  return (
    <details class="lines"><summary>{title}</summary>
      {Object.entries(lines).map(([name, text]) => <Line key={name} name={name === "cli" ? "Command line" : "Python"} text={text} />)}</details>
  );
}

function Line({ name, text }: { name: string; text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(text).then(() => { setCopied(true); setTimeout(() => setCopied(false), 1500); });
  return <div class="line"><h3>{name}</h3><pre tabIndex={0}><code>{text}</code></pre><button type="button" onClick={copy}>{copied ? "Copied" : "Copy"}</button></div>;
}
