// Labels of texts by the model in this folder, computed in a browser: no text leaves it.
//
//   import { Classifier } from "./classifier.js";
//   const classifier = await Classifier.open();
//   await classifier.predict(["a text", "another text"]);
//
// onnxruntime-web and @huggingface/tokenizers come from node_modules/ of this folder, where `npm install` was run in it,
// else from a CDN, in the versions of package.json.

import { listTerms } from "./linear_terms.js";

const HERE = new URL(".", import.meta.url);
const CDN = "https://cdn.jsdelivr.net/npm/";
const MODULES = {
  "onnxruntime-web": "dist/ort.wasm.min.mjs",
  "@huggingface/tokenizers": "dist/tokenizers.min.mjs",
};

async function json(name) {
  const found = await fetch(new URL(name, HERE));
  if (!found.ok) throw new Error(`${name} is not there: ${found.status}`);
  return found.json();
}

async function module(name, version) {
  const local = new URL(`node_modules/${name}/${MODULES[name]}`, HERE);
  const { ok } = await fetch(local, { method: "HEAD" });
  return import(ok ? local : `${CDN}${name}@${version}/${MODULES[name]}`);
}

export class Classifier {
  static async open() {
    const made = new Classifier();
    const { dependencies } = await json("package.json");
    made.config = await json("config.json");
    made.labels = await json("labels.json");
    made.thresholds = made.config.multi ? (await json("thresholds.json")).both : null;
    made.browser = await json("browser.json"); // the marks around texts, and what the linear model needs
    const read = await json("tokenizer.json");
    const { Tokenizer } = await module("@huggingface/tokenizers", dependencies["@huggingface/tokenizers"]);
    made.tokenizer = new Tokenizer(read, { unk_token: read.model.unk_token });
    made.lowercases = /"lowercase":true|"type":"Lowercase"/.test(JSON.stringify(read.normalizer));
    made.ort = await module("onnxruntime-web", dependencies["onnxruntime-web"]);
    made.ort.env.wasm.numThreads = 1; // more need headers that plain servers of files do not send
    made.session = await made.ort.InferenceSession.create(new URL("model.onnx", HERE).href);
    return made;
  }

  // The label of each text; of a model that gives any number of them a list, the likeliest first.
  async predict(texts, pairs) {
    return (await this.probabilities(texts, pairs)).map((row) => this.choose(row));
  }

  choose(probabilities) {
    const order = this.labels.map((_, at) => at).sort((one, other) => probabilities[other] - probabilities[one]);
    if (!this.thresholds) return this.labels[order[0]];
    return order.filter((at) => probabilities[at] >= this.thresholds[at]).map((at) => this.labels[at]);
  }

  // A row for each text, a number for each label.
  async probabilities(texts, pairs) {
    const rows = [];
    for (const [at, text] of texts.entries()) {
      const logits = await this.logits(text, pairs?.[at]);
      if (this.thresholds) {
        rows.push(logits.map((logit) => 1 / (1 + Math.exp(-logit))));
      } else {
        const largest = Math.max(...logits);
        const exp = logits.map((logit) => Math.exp(logit - largest));
        const sum = exp.reduce((one, other) => one + other);
        rows.push(exp.map((one) => one / sum));
      }
    }
    return rows;
  }

  async logits(text, pair) {
    const { ids, segments } = this.encode(text, pair);
    const shape = [1, ids.length];
    const integers = (values, shape) => new this.ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
    const inputs = { ids: integers(ids, shape), real: new this.ort.Tensor("bool", new Uint8Array(ids.length).fill(1), shape) };
    if (this.config.pairs) inputs.segments = integers(segments, shape);
    if (this.config.terms) {
      const terms = listTerms(text, this.config.terms, this.browser.folded);
      inputs.terms = integers(terms.flatMap(([term, count]) => [0, term, count]), [terms.length, 3]);
    }
    const { logits } = await this.session.run(inputs, ["logits"]);
    return Array.from(logits.data);
  }

  // Token ids of a text, or of a pair, cut to the length of training with the longer text first; and for each token
  // which text it is of.
  encode(text, pair) {
    const { marks, segments } = this.browser; // of each mark before, between and after the texts; of each text
    const texts = [text, ...(this.config.pairs ? [pair] : [])].map((one) => this.tokenize(one));
    const room = this.config.max_length - marks.flat().length;
    const lengths = lengthsWithin(texts.map((one) => one.length), room);
    const ids = [], found = [];
    for (const [at, around] of marks.entries()) {
      for (const [id, segment] of around) {
        ids.push(id);
        found.push(segment);
      }
      for (const id of texts[at]?.slice(0, lengths[at]) ?? []) {
        ids.push(id);
        found.push(segments[at]);
      }
    }
    return { ids, segments: found };
  }

  tokenize(text) {
    if (this.lowercases) text = text.replaceAll("Σ", "σ"); // JavaScript alone has another one for the end of a word
    return this.tokenizer.encode(text, { add_special_tokens: false }).ids;
  }

  // Those of some texts whose tokens differ from the run's: a browser has its own tables of letters.
  misread() {
    const isRead = ({ texts, ids }) => this.encode(...texts).ids.join() === ids.join();
    return this.browser.examples.filter((one) => !isRead(one)).map(({ texts }) => texts.join(" / "));
  }
}

function lengthsWithin([first, second = 0], room) {
  if (first + second <= room) return [first, second];
  const shorter = Math.min(first, second), half = Math.floor(room / 2);
  const [less, more] = 2 * shorter <= room ? [shorter, room - shorter] : [half, room - half];
  return first > second ? [more, less] : [less, more];
}
