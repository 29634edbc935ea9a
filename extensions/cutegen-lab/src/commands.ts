// Palette commands. A decision carries session, version and source hash; the kernel refuses it when any is not what is open now.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import type { ReadonlyJSONObject, ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { Connection } from './connection';
import type { IVersion } from './protocol';
import { icon } from './sidebar';

const CATEGORY = 'CuTeGen';
const DECISION: ReadonlyJSONObject = {
  type: 'object',
  properties: {
    session: { type: 'string', description: 'Name of the session; default: the one shown' },
    version: { type: 'integer', minimum: 1, description: 'Version number; default: the one shown, else the latest that waits' },
    sourceHash: { type: 'string', description: 'SHA-256 of the source that was looked at; required when version is given' },
    reason: { type: 'string', description: 'Kept with the decision' },
    hunks: { type: 'array', items: { type: 'integer', minimum: 1 }, description: 'Accept only these hunks; default: all' }
  }
};
const NOTHING: ReadonlyJSONObject = { type: 'object', properties: {} };
const STEP: ReadonlyJSONObject = {
  type: 'object',
  properties: { text: { type: 'string', description: 'What to change next; default: the proposer decides' } }
};

type Current = () => Connection | null;

function waiting(connection: Connection | null): IVersion | undefined {
  const state = connection?.state;
  const rows = state?.versions.filter(row => row.status === 'pending') ?? [];
  return rows.find(row => row.number === state?.shown) ?? rows[rows.length - 1];
}

function decide(kind: 'accept' | 'reject', current: Current, args: ReadonlyPartialJSONObject): void {
  const connection = current();
  const shown = waiting(connection);
  if (!connection?.state || (!shown && args.version === undefined)) {
    Notification.info('CuTeGen: no version is waiting for a decision.', { autoClose: 3000 });
    return;
  }
  if (args.version !== undefined && typeof args.sourceHash !== 'string') {
    throw new Error(`cutegen:${kind}-version: with a version give also the sourceHash that was looked at.`);
  }
  const hunks = Array.isArray(args.hunks) ? (args.hunks as number[]) : null;
  connection.send(kind, {
    session: typeof args.session === 'string' ? args.session : connection.state.session,
    version: Number(args.version ?? shown?.number),
    sourceHash: String(args.sourceHash ?? shown?.hash),
    reason: typeof args.reason === 'string' ? args.reason : '',
    hunks: kind === 'accept' ? hunks : null
  });
}

export function addCommands(app: JupyterFrontEnd, current: Current, palette: ICommandPalette | null, show: () => void): void {
  const { commands } = app;
  const live = () => Boolean(current()?.state);
  const pending = () => waiting(current()) !== undefined;
  const busy = () => Boolean(current()?.state?.busy);
  const step = (args: ReadonlyPartialJSONObject) => {
    const text = typeof args.text === 'string' ? args.text : '';
    current()?.send(text ? 'refine' : 'generate', { text });
  };
  commands.addCommand('cutegen:step', {
    label: 'Step: next version', caption: 'Propose and test the next version', describedBy: { args: STEP }, isEnabled: () => live() && !busy(), execute: step
  });
  commands.addCommand('cutegen:stop', {
    label: 'Stop', caption: 'Stop the running step; what is finished is kept', describedBy: { args: NOTHING }, isEnabled: busy, execute: () => void current()?.send('stop')
  });
  commands.addCommand('cutegen:accept-version', {
    label: 'Accept version', caption: 'Make the version the baseline', describedBy: { args: DECISION }, isEnabled: pending, execute: args => decide('accept', current, args)
  });
  commands.addCommand('cutegen:reject-version', {
    label: 'Reject version', caption: 'Keep the baseline', describedBy: { args: DECISION }, isEnabled: pending, execute: args => decide('reject', current, args)
  });
  commands.addCommand('cutegen:next-pending', {
    label: 'Next pending version', caption: 'Show the next version that waits for a decision', describedBy: { args: NOTHING }, isEnabled: live, execute: () => void current()?.send('next')
  });
  commands.addCommand('cutegen:show-panel', {
    label: args => (args.toolbar ? '' : 'Show CuTeGen panel'), caption: 'Show the versions of this notebook\'s CuTeGen session', icon, describedBy: { args: NOTHING }, execute: show
  });
  for (const name of ['step', 'stop', 'accept-version', 'reject-version', 'next-pending', 'show-panel']) {
    palette?.addItem({ command: `cutegen:${name}`, category: CATEGORY });
  }
}
