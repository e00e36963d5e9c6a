// Loaded into Azurite before it starts (`node --require`): its garbage collection comes at the start and never again.
//
// Every ten minutes Azurite removes the bodies that no blob refers to any more, one after the other, each by a search
// through all of them, and answers nobody meanwhile: 4 s for 2,000 overwritten blobs, 127 s for 10,000 (measured).
// A test run overwrites tens of thousands, and whichever test was running then failed with "it timed out".
"use strict";

const path = require("path");

const program = require("fs").realpathSync(process.argv[1]);
const constants = require(path.join(path.dirname(program), "utils", "constants.js"));
if (typeof constants.DEFAULT_GC_INTERVAL_MS !== "number") {
  throw new Error("this Azurite keeps the time between its sweeps elsewhere: see lab/azurite_without_sweeps.cjs");
}
constants.DEFAULT_GC_INTERVAL_MS = 2 ** 31 - 1; // the longest that setTimeout can wait: 24 days
