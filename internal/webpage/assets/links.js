// Links to peers.

import { text } from "./dom.js";
import { count, day, none, span } from "./format.js";
import { badge, lines, tabled } from "./section.js";

const levels = { connected: "good", draining: "warn", down: "bad" };

export function links() {
  const columns = [
    { name: "peer", label: "Peer", width: 4, value: (p) => p.name, draw: (c, p) => lines(c, p.name, p.address) },
    { name: "state", label: "State", width: 2.2, value: (p) => p.state, draw: (c, p) => badge(c, p.state, levels[p.state] ?? "") },
    { name: "since", label: "Since", hint: "how long it has been so", number: true, width: 13, value: (p) => p.since_s, draw: (c, _, v) => text(c, span(v)) },
    { name: "fabric", label: "Fabric", hint: "what really carries the data", width: 2, value: (p) => p.fabric ?? "", draw: (c, _, v) => text(c, v || none) },
    {
      name: "tls", label: "TLS", hint: "of the connection that sets up lanes", width: 6.5, value: (p) => p.tls?.version ?? "",
      draw: (c, p) => (p.tls ? lines(c, `${p.tls.version}, ${p.tls.cipher}`, `${p.tls.peer.name}, expires ${day(p.tls.peer.not_after)}`) : lines(c, p.state === "down" ? none : "no", "")),
    },
    { name: "services", label: "Methods", hint: "how many methods it serves", number: true, width: 9, value: (p) => p.services, draw: (c, _, v) => text(c, count(v)) },
    { name: "error", label: "Last error", width: 7, value: (p) => p.error ?? "", draw: (c, _, v) => text(c, v || none) },
  ];
  const part = tabled("links", "Links", {
    columns, key: (p) => p.name, search: (p) => [p.name, p.address, p.state, p.fabric, p.error, p.tls?.peer.name].join(" "),
    empty: "This node has no peers.", mark: (p) => (p.state === "connected" ? "" : levels[p.state] ?? ""),
  });
  part.update = (m) => {
    const peers = m.status.peers ?? [];
    const up = peers.filter((p) => p.state === "connected").length;
    text(part.size, `${up} of ${peers.length} connected`);
    part.table.update(peers);
    return { size: peers.length, trouble: peers.length - up };
  };
  return part;
}
