// Wide tables and code scroll sideways; with the keyboard too.
addEventListener("load", () => {
  document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code").forEach((box) => (box.tabIndex = 0));
});
