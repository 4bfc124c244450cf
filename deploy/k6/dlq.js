// A probe: a message that nobody acknowledges goes to the dead-letter queue.

import { sleep } from "k6";
import { acknowledge, create, dequeue, drop, enqueue, expect, look, thresholds } from "./gateway.js";

const LOOKS = 20;

export const options = { thresholds };

export default function () {
  const queue = create("dlq", { visibilityTimeout: 1, maxDeliveries: 1 });
  try {
    const message = enqueue(queue, "poison");
    expect("it is delivered once", dequeue(queue).message_id === message);
    let dead = null;
    for (let looks = 0; dead === null && looks < LOOKS; looks++) {
      sleep(1.1);
      expect("it is not delivered again", dequeue(queue).message === null);
      dead = look(queue).dlq_id;
    }
    expect("there is a dead-letter queue", dead !== null);
    expect("the message is there", dequeue(dead).message_id === message);
    acknowledge(dead, message);
  } finally {
    drop(queue); // and its dead-letter queue with it
  }
}
