// One notebook's comm to the kernel: found again after a page reload, a kernel restart or a change of kernel.

import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import { IMessage, IState, TARGET } from './protocol';

export class Connection implements IDisposable {
  readonly changed = new Signal<this, void>(this);
  state: IState | null = null;
  note = 'No session in this notebook: run a cell with %load_ext workbench and %%cutegen.';
  private _kernel: Kernel.IKernelConnection | null = null;
  private _comm: Kernel.IComm | null = null;
  private _isDisposed = false;

  constructor(private readonly _context: ISessionContext) {
    _context.kernelChanged.connect(this._connect, this);
    _context.statusChanged.connect(this._onStatus, this);
    void _context.ready.then(() => this._connect());
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._kernel?.removeCommTarget(TARGET, this._opened);
    Signal.clearData(this);
  }

  send(command: string, values: JSONObject = {}): boolean {
    if (!this._comm || this._comm.isDisposed) {
      return false;
    }
    this._comm.send({ command, ...values });
    return true;
  }

  private _onStatus(_: ISessionContext, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead' || status === 'terminating') {
      this._drop('The kernel restarted. The session is saved: run its cell again.');
    }
  }

  private _drop(note: string): void {
    this._comm = null;
    if (this.state) {
      this.note = note;
    }
    this.state = null;
    this.changed.emit();
  }

  private _connect(): void {
    const kernel = this._context.session?.kernel ?? null;
    if (this._isDisposed || kernel === null) {
      return;
    }
    if (kernel !== this._kernel) {
      this._kernel?.removeCommTarget(TARGET, this._opened);
      this._kernel = kernel;
      this._drop(this.note);
    }
    kernel.registerCommTarget(TARGET, this._opened);
    void this._find(kernel);
  }

  // A comm that the kernel opened before this page was loaded.
  private async _find(kernel: Kernel.IKernelConnection): Promise<void> {
    const reply = await kernel.requestCommInfo({ target_name: TARGET });
    if (this._isDisposed || this._comm || kernel !== this._kernel || reply.content.status !== 'ok') {
      return;
    }
    const ids = Object.keys((reply.content as { comms: JSONObject }).comms);
    const id = ids[ids.length - 1];
    if (id && !kernel.hasComm(id)) {
      this._adopt(kernel.createComm(TARGET, id));
    }
  }

  private readonly _opened = (comm: Kernel.IComm, _: KernelMessage.ICommOpenMsg): void => this._adopt(comm);

  private _adopt(comm: Kernel.IComm): void {
    this._comm = comm;
    comm.onMsg = message => {
      const data = message.content.data as unknown as IMessage;
      if (data.kind === 'state' && comm === this._comm) {
        this.state = data.state ?? null;
        this.note = data.error ?? 'The workbench is loaded, but no session is open: give it a problem with %%cutegen.';
        this.changed.emit();
      }
    };
    comm.onClose = () => {
      if (comm === this._comm) {
        this._drop('The workbench was unloaded in this kernel.');
      }
    };
    comm.send({ command: 'hello' });
  }
}
