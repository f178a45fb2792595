// Browsers refuse workers to pages that are opened as files; the search then runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.queue = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.appendChild(frame);
      const inner = frame.contentWindow;
      inner.importScripts = (...names) => Promise.all(names.map((name) => load(inner, new URL(name, url).href)));
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      load(inner, url).then(() => {
        this.ready = (data) => inner.dispatchEvent(new MessageEvent("message", { data }));
        this.queue.splice(0).forEach(this.ready);
      });
    }

    postMessage(data) {
      this.ready ? this.ready(data) : this.queue.push(data);
    }
  };

  function load(inner, url) {
    return new Promise((done, failed) => {
      const script = inner.document.createElement("script");
      Object.assign(script, { src: url, onload: done, onerror: failed });
      inner.document.body.appendChild(script);
    });
  }
}
