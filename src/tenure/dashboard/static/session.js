// Who is signed in, and how the server is asked for something.

import { byId, say, show } from "./dom.js";

export const session = { actions: false, signedIn: false, csrf: null, readNeedsToken: false };
const told = new Set();
let known = false;

export const onSession = (tell) => told.add(tell);

export function takeSession(given) {
  if (!given || (known && Object.keys(session).every((key) => !(key in given) || given[key] === session[key]))) return;
  known = true;
  for (const key of Object.keys(session)) if (key in given) session[key] = given[key];
  told.forEach((tell) => tell(session));
}

/** A dashboard that was started anew knows no session of before: whoever is connected again asks. */
export async function askSession() {
  try {
    const answer = await fetch("api/session", { cache: "no-store" });
    if (answer.ok) takeSession(await answer.json());
  } catch {
    // then it is known from the next connection
  }
}

/** `{status, says}`: never raises; what went wrong is a sentence. */
export async function post(path, body, patienceMs = 90_000) {
  const headers = { "Content-Type": "application/json" };
  if (session.csrf) headers["X-CSRF-Token"] = session.csrf;
  let answer;
  try {
    answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(patienceMs) });
  } catch (error) {
    const late = error.name === "TimeoutError";
    return { status: 0, says: late ? "The dashboard did not answer in time: look at what changed before you try again." : "The dashboard cannot be reached." };
  }
  let found = {};
  try {
    found = await answer.json();
  } catch {}
  if (answer.status === 401 && session.signedIn) takeSession({ signedIn: false, csrf: null });
  return { status: answer.status, ok: answer.ok && found.ok !== false, says: found.says ?? found.error ?? `The dashboard answered ${answer.status}.`, found };
}

const dialog = byId("sign-in-dialog");
const field = byId("token");
const problem = byId("sign-in-error");
const go = byId("sign-in-go");

export function openSignIn() {
  say(problem, "");
  field.value = "";
  show(byId("sign-in-cancel"), !session.readNeedsToken);
  if (!dialog.open) dialog.showModal();
  field.focus();
}

async function signIn(event) {
  event.preventDefault();
  say(problem, "");
  go.disabled = true;
  const { status, ok, says, found } = await post("api/sign-in", { token: field.value }, 15_000);
  go.disabled = false;
  if (!ok) {
    say(problem, status === 401 ? `That is not the token. ${says}` : says);
    field.select();
    field.focus();
    return;
  }
  field.value = "";
  if (session.readNeedsToken) {
    location.reload();
    return;
  }
  dialog.close();
  takeSession(found);
}

export function startSession() {
  byId("sign-in").addEventListener("click", openSignIn);
  byId("sign-in-form").addEventListener("submit", signIn);
  dialog.addEventListener("cancel", (event) => {
    if (session.readNeedsToken && !session.signedIn) event.preventDefault();
  });
  byId("sign-out").addEventListener("click", async () => {
    const { ok, found } = await post("api/sign-out", {}, 15_000);
    if (!ok) return;
    if (session.readNeedsToken) location.reload();
    takeSession({ signedIn: false, csrf: null, ...found });
    byId("sign-in").focus();
  });
  onSession(({ actions, signedIn }) => {
    const button = document.activeElement === byId("sign-in") ? byId("sign-out") : null;
    show(byId("sign-in"), actions && !signedIn);
    show(byId("sign-out"), signedIn);
    button?.focus();
  });
}
