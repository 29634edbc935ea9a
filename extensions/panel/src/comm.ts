// anywidget 0.11 waits 2 s for the module of a widget. If a busy page takes longer, the widget is drawn all the same, but all further messages of the
// kernel to it are dropped (Runtime.ready stays rejected). So the panel takes its messages by the handler of ipywidgets, which anywidget's one would call.

import type { Model } from "./types.js";

interface WidgetModel {
  comm?: { on_msg(callback: (message: unknown) => unknown): void };
  _handle_comm_msg?(message: unknown): unknown;
}

// The handler of the class furthest up that has one: ipywidgets' WidgetModel.
function baseHandler(widget: WidgetModel): WidgetModel["_handle_comm_msg"] {
  let found: WidgetModel["_handle_comm_msg"];
  for (let level: unknown = widget; level; level = Object.getPrototypeOf(level)) {
    if (Object.getOwnPropertyNames(level).includes("_handle_comm_msg")) found = (level as WidgetModel)._handle_comm_msg;
  }
  return found;
}

// Resolves when messages reach the model; at once where the front end is another one.
export async function attachCommHandler(model: Model): Promise<void> {
  const widget = (await model.widget_manager?.get_model(model.get("widget_id"))) as WidgetModel | undefined;
  const handler = widget && baseHandler(widget);
  if (widget && handler) widget.comm?.on_msg((message) => handler.call(widget, message));
}
