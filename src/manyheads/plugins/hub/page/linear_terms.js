// The terms of a text that the linear model counts, by their numbers: as in linear_terms.py.

const WHITE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/; // what Python takes for it
const NO_WIDTH = /(?!\u200b)[\p{Cf}\p{Variation_Selector}]/gu;
const BETWEEN_WORDS = /[^\p{L}\p{N}\p{M}_]+/u;

// [term, how often the text has it] of each; a term is known by its checksum. `kind` is "words", "characters" or "both";
// `folded` has the letters whose folded form is not their lower case.
export function listTerms(text, kind, folded) {
  const letters = Array.from(text.normalize("NFC"), (letter) => folded[letter] ?? letter.toLowerCase());
  const plain = letters.join("").normalize("NFC").split(WHITE).filter(Boolean).join(" ");
  const counts = new Map();
  const count = (term) => {
    const number = checksum(term);
    counts.set(number, (counts.get(number) ?? 0) + 1);
  };
  if (kind !== "characters") {
    const words = plain.replace(NO_WIDTH, "").split(BETWEEN_WORDS).filter(Boolean);
    words.forEach(count);
    words.slice(1).forEach((word, at) => count(`${words[at]} ${word}`));
  }
  if (kind !== "words" && plain) {
    const spaced = Array.from(` ${plain} `);
    for (const n of [2, 3, 4]) {
      for (let at = 0; at + n <= spaced.length; at++) count(`\n${spaced.slice(at, at + n).join("")}`);
    }
  }
  return [...counts];
}

// CRC-32 of the UTF-8 bytes.
function checksum(term) {
  let crc = 0xffffffff;
  for (const byte of new TextEncoder().encode(term)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
