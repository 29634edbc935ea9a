// The side panel: version tree and status of the session in the current notebook.

import { LabIcon } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';
import type { CommandRegistry } from '@lumino/commands';
import type { Connection } from './connection';
import type { IState, IVersion } from './protocol';

export const icon = new LabIcon({
  name: 'cutegen:icon',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161"><path d="M4 4h7v7H4zM13 4h7v3h-7zM13 8h7v3h-7zM4 13h3v7H4zM8 13h3v7H8z"/><path d="M13 17.5l2.2-2.2 1.8 1.8 3.2-3.6 1.6 1.4-4.7 5.3z"/></g></svg>'
});

const MARKS: Record<IVersion['status'], string> = { pending: '?', accepted: '✓', rejected: '✗' };

function make(tag: string, className: string, text = ''): HTMLElement {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

export class Sidebar extends Widget {
  private _connection: Connection | null = null;
  private readonly _title = make('h2', 'cutegen-title', 'CuTeGen');
  private readonly _about = make('p', 'cutegen-about');
  private readonly _status = make('p', 'cutegen-status');
  private readonly _tools = make('div', 'cutegen-tools');
  private readonly _tree = make('ul', 'cutegen-tree');

  constructor(private readonly _commands: CommandRegistry) {
    super();
    this.id = 'cutegen-sidebar';
    this.addClass('cutegen-sidebar');
    this.title.icon = icon;
    this.title.caption = 'CuTeGen: versions of the current session';
    this._status.setAttribute('role', 'status');
    this._tree.setAttribute('aria-label', 'Versions');
    for (const id of ['cutegen:step', 'cutegen:stop', 'cutegen:accept-version', 'cutegen:reject-version', 'cutegen:next-pending']) {
      const button = make('button', 'cutegen-button', this._commands.label(id)) as HTMLButtonElement;
      button.type = 'button';
      button.dataset.command = id;
      button.addEventListener('click', () => void this._commands.execute(id));
      this._tools.append(button);
    }
    this.node.append(this._title, this._about, this._status, this._tools, this._tree);
    this._commands.commandChanged.connect(() => this._enable());
    this.follow(null);
  }

  follow(connection: Connection | null): void {
    this._connection?.changed.disconnect(this._render, this);
    this._connection = connection;
    connection?.changed.connect(this._render, this);
    this._render();
  }

  private _enable(): void {
    for (const button of this._tools.querySelectorAll('button')) {
      button.disabled = !this._commands.isEnabled(button.dataset.command ?? '');
    }
  }

  private _render(): void {
    const state = this._connection?.state ?? null;
    this._title.textContent = state ? `${state.problem}: ${state.session}` : 'CuTeGen';
    this._about.textContent = state ? `${state.executor}, ${state.arch}, rates of ${state.device}` : '';
    const note = this._connection?.note ?? 'Open a notebook that uses %%cutegen.';
    const text = state ? (state.busy && state.progress.message) || state.message.text || 'ready' : note;
    if (this._status.textContent !== text) {
      this._status.textContent = text;
    }
    this.node.setAttribute('aria-busy', state?.busy ? 'true' : 'false');
    this._tree.replaceChildren(...(state ? state.versions.map(row => this._row(state, row)) : []));
    this._enable();
  }

  private _row(state: IState, row: IVersion): HTMLElement {
    const words: string[] = [row.status];
    if (row.number === state.baseline) {
      words.push('baseline');
    }
    if (row.number === state.best) {
      words.push('best');
    }
    const button = make('button', `cutegen-version cutegen-${row.status}`) as HTMLButtonElement;
    button.type = 'button';
    button.dataset.version = String(row.number);
    if (row.number === state.shown) {
      button.setAttribute('aria-current', 'true');
    }
    button.append(
      make('span', 'cutegen-mark', `${MARKS[row.status]} v${row.number}`),
      make('span', 'cutegen-name', row.title),
      make('span', 'cutegen-verdict', `${words.join(', ')}; ${row.verdict}`)
    );
    button.addEventListener('click', () => this._connection?.send('select', { version: row.number }));
    const item = document.createElement('li');
    item.style.marginLeft = `${Math.min(row.depth, 6) * 10}px`;
    item.append(button);
    return item;
  }
}
