// Marks %cutegen lines and %%cutegen cells in notebook editors: magic, sub-command, options, and the body's lines.

import { Extension, RangeSetBuilder, Text } from '@codemirror/state';
import { Decoration, DecorationSet, EditorView, ViewPlugin, ViewUpdate } from '@codemirror/view';

const CELL = /^\s*%%cutegen\b/;
const LINE = /^(\s*)(%{1,2}cutegen)\b(\s+[a-z]+)?(.*)$/;
const OPTION = /(^|\s)(-{1,2}[a-z][\w-]*)/gi;
const MAX_LINES = 2000; // a longer cell is not scanned

const magic = Decoration.mark({ class: 'cutegen-magic' });
const verb = Decoration.mark({ class: 'cutegen-verb' });
const option = Decoration.mark({ class: 'cutegen-option' });
const head = Decoration.line({ class: 'cutegen-head' });
const body = Decoration.line({ class: 'cutegen-body' });

function decorate(text: Text): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  const isCell = text.lines > 0 && CELL.test(text.line(1).text);
  for (let number = 1; number <= Math.min(text.lines, MAX_LINES); number += 1) {
    const line = text.line(number);
    const match = number === 1 || !isCell ? LINE.exec(line.text) : null;
    if (!match) {
      if (isCell) {
        builder.add(line.from, line.from, body);
      }
      continue;
    }
    const start = line.from + match[1].length;
    const afterMagic = start + match[2].length;
    builder.add(line.from, line.from, head);
    builder.add(start, afterMagic, magic);
    const word = match[3] ?? '';
    if (word) {
      builder.add(afterMagic + word.length - word.trimStart().length, afterMagic + word.length, verb);
    }
    const rest = afterMagic + word.length;
    for (const found of match[4].matchAll(OPTION)) {
      const from = rest + (found.index ?? 0) + found[1].length;
      builder.add(from, from + found[2].length, option);
    }
  }
  return builder.finish();
}

export function highlighter(): Extension {
  return ViewPlugin.fromClass(
    class {
      decorations: DecorationSet;
      constructor(view: EditorView) {
        this.decorations = decorate(view.state.doc);
      }
      update(update: ViewUpdate): void {
        if (update.docChanged) {
          this.decorations = decorate(update.state.doc);
        }
      }
    },
    { decorations: plugin => plugin.decorations }
  );
}
