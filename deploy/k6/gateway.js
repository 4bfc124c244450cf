// What the scripts have in common: where the gateway is, and calls that are checked.

import http from "k6/http";
import { check } from "k6";

const URL = (__ENV.QUEUEGATE_URL || "http://127.0.0.1:9324").replace(/\/+$/, "");
const KEY = __ENV.QUEUEGATE_API_KEY ? { "X-Api-Key": __ENV.QUEUEGATE_API_KEY } : {};

// name: what k6 counts the request under, for paths hold ids.
export function call(name, method, path, body, status = 200) {
  const answer = http.request(method, `${URL}/api/queues${path}`, body && JSON.stringify(body), {
    headers: { "Content-Type": "application/json", ...KEY },
    tags: { name },
  });
  if (!check(answer, { [`${name}: ${status}`]: (found) => found.status === status })) {
    throw new Error(`${name}: ${answer.status} ${answer.error} ${answer.body}`);
  }
  return answer.json();
}

export function create(queueName, settings = {}) {
  const body = { queueName, queueSize: 100000, visibilityTimeout: 30, maxDeliveries: 3, ...settings };
  return call("create", "POST", "", body, 201).queue_id;
}

export const look = (queue) => call("look", "GET", `/${queue}`);
export const drop = (queue) => call("delete queue", "DELETE", `/${queue}`);
export const enqueue = (queue, data) =>
  call("enqueue", "POST", `/${queue}/messages`, { data }, 201).message_id;
export const dequeue = (queue) => call("dequeue", "GET", `/${queue}/messages`);
export const acknowledge = (queue, message) =>
  call("acknowledge", "DELETE", `/${queue}/messages/${message}`);

// One failed request or check makes k6 end with 99.
export const thresholds = { http_req_failed: ["rate==0"], checks: ["rate==1"] };

export function expect(what, holds) {
  if (!check(null, { [what]: () => holds })) {
    throw new Error(`not so: ${what}`);
  }
}
