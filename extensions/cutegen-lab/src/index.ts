// CuTeGen in JupyterLab: highlighting, commands, shortcuts, toolbar button and side panel.

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { EditorExtensionRegistry, IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { addCommands } from './commands';
import { Connection } from './connection';
import { highlighter } from './highlight';
import { Sidebar } from './sidebar';

const LIVE = 'jp-mod-cutegen'; // shortcuts work only in notebooks with a session

function activate(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null
): void {
  const connections = new Map<NotebookPanel, Connection>();
  const current = () => (tracker.currentWidget ? (connections.get(tracker.currentWidget) ?? null) : null);
  addCommands(app, current, palette, () => app.shell.activateById('cutegen-sidebar'));
  const sidebar = new Sidebar(app.commands);
  app.shell.add(sidebar, 'right', { rank: 550, type: 'CuTeGen' });
  restorer?.add(sidebar, 'cutegen-sidebar');

  const attach = (panel: NotebookPanel) => {
    const connection = new Connection(panel.sessionContext);
    connections.set(panel, connection);
    connection.changed.connect(() => {
      panel.content.toggleClass(LIVE, connection.state !== null);
      app.commands.notifyCommandChanged();
    });
    panel.disposed.connect(() => {
      connections.delete(panel);
      connection.dispose();
      sidebar.follow(current());
    });
    sidebar.follow(current());
  };
  tracker.forEach(attach);
  tracker.widgetAdded.connect((_, panel) => attach(panel));
  tracker.currentChanged.connect(() => {
    sidebar.follow(current());
    app.commands.notifyCommandChanged();
  });
}

const loop: JupyterFrontEndPlugin<void> = {
  id: 'cutegen-lab:plugin',
  description: 'Commands, shortcuts, toolbar button and side panel for CuTeGen sessions.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ICommandPalette, ILayoutRestorer],
  activate
};

const highlighting: JupyterFrontEndPlugin<void> = {
  id: 'cutegen-lab:highlighting',
  description: 'Highlights %cutegen lines and %%cutegen cells.',
  autoStart: true,
  requires: [IEditorExtensionRegistry],
  activate: (_: JupyterFrontEnd, registry: IEditorExtensionRegistry) => {
    registry.addExtension({
      name: 'cutegen-lab:highlighting',
      factory: () => EditorExtensionRegistry.createImmutableExtension(highlighter())
    });
  }
};

export default [loop, highlighting];
