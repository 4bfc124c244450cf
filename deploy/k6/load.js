// Ten consumers that are producers, too: enqueue, dequeue and acknowledge on one of 15 queues.

import { acknowledge, create, dequeue, drop, enqueue, thresholds } from "./gateway.js";

const QUEUES = 15;

export const options = {
  vus: 10,
  duration: __ENV.QUEUEGATE_LOAD_DURATION || "30s",
  thresholds,
};

export function setup() {
  return Array.from({ length: QUEUES }, (_, number) => create(`load-${number}`));
}

export default function (queues) {
  const queue = queues[Math.floor(Math.random() * queues.length)];
  enqueue(queue, "a lungo");
  const found = dequeue(queue); // perhaps what another of the ten enqueued
  if (found.message_id) {
    acknowledge(queue, found.message_id);
  }
}

export function teardown(queues) {
  queues.forEach(drop);
}
