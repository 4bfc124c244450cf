// A probe: create a queue, enqueue, dequeue, acknowledge, delete the queue.

import { acknowledge, create, dequeue, drop, enqueue, expect, thresholds } from "./gateway.js";

export const options = { thresholds };

export default function () {
  const queue = create("happy-path");
  try {
    const message = enqueue(queue, "one espresso");
    const found = dequeue(queue);
    expect("what was enqueued comes", found.message_id === message && found.data === "one espresso");
    acknowledge(queue, message);
    expect("nothing is left", dequeue(queue).message === null);
  } finally {
    drop(queue);
  }
}
