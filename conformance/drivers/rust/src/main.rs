//! Drives the AWS SDK for Rust (conformance/clients/README.md).

use std::collections::HashMap;
use std::env::var;
use std::fmt::Debug;
use std::hash::Hash;
use std::io::{Write, stdin, stdout};

use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::primitives::{Blob, DateTime, DateTimeFormat};
use aws_smithy_types::base64;
use serde_json::{Map, Value, json};

/// One arm for each action and one implementation for each shape, from the models of AWS.
mod calls;

type Members = Map<String, Value>;

/// A value of the SDK that a line can hold.
pub trait Lined: Sized {
    fn read(value: Value) -> Result<Self, String>;

    /// None: nothing is there.
    fn write(&self) -> Option<Value>;
}

fn other(value: &Value) -> String {
    format!("not expected: {value}")
}

impl Lined for String {
    fn read(value: Value) -> Result<Self, String> {
        value
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| other(&value))
    }

    fn write(&self) -> Option<Value> {
        Some(json!(self))
    }
}

impl Lined for bool {
    fn read(value: Value) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| other(&value))
    }

    fn write(&self) -> Option<Value> {
        Some(json!(self))
    }
}

impl Lined for i64 {
    fn read(value: Value) -> Result<Self, String> {
        value.as_i64().ok_or_else(|| other(&value))
    }

    fn write(&self) -> Option<Value> {
        Some(json!(self))
    }
}

impl Lined for i32 {
    fn read(value: Value) -> Result<Self, String> {
        i64::read(value)?
            .try_into()
            .map_err(|_| "larger than 32 bits".to_owned())
    }

    fn write(&self) -> Option<Value> {
        Some(json!(self))
    }
}

impl Lined for Blob {
    fn read(value: Value) -> Result<Self, String> {
        let text = value["$base64"].as_str().ok_or_else(|| other(&value))?;
        base64::decode(text)
            .map(Blob::new)
            .map_err(|error| error.to_string())
    }

    fn write(&self) -> Option<Value> {
        Some(json!({"$base64": base64::encode(self)}))
    }
}

impl Lined for DateTime {
    fn read(value: Value) -> Result<Self, String> {
        let format = DateTimeFormat::DateTimeWithOffset;
        DateTime::from_str(&String::read(value)?, format).map_err(|error| error.to_string())
    }

    fn write(&self) -> Option<Value> {
        self.fmt(DateTimeFormat::DateTime).ok().map(Value::from)
    }
}

impl<T: Lined> Lined for Option<T> {
    fn read(value: Value) -> Result<Self, String> {
        T::read(value).map(Some)
    }

    fn write(&self) -> Option<Value> {
        self.as_ref().and_then(T::write)
    }
}

impl<T: Lined> Lined for Vec<T> {
    fn read(value: Value) -> Result<Self, String> {
        let Value::Array(items) = value else {
            return Err(other(&value));
        };
        items.into_iter().map(T::read).collect()
    }

    fn write(&self) -> Option<Value> {
        Some(self.iter().filter_map(T::write).collect())
    }
}

impl<K: Lined + Eq + Hash, T: Lined> Lined for HashMap<K, T> {
    fn read(value: Value) -> Result<Self, String> {
        let read = |(name, item)| Ok((K::read(Value::String(name))?, T::read(item)?));
        members(value)?.into_iter().map(read).collect()
    }

    fn write(&self) -> Option<Value> {
        let write =
            |(name, item): (&K, &T)| Some((name.write()?.as_str()?.to_owned(), item.write()?));
        Some(Value::Object(self.iter().filter_map(write).collect()))
    }
}

/// The result of a builder, which can be an error only where a shape has required members.
pub trait Built<T> {
    fn built(self) -> Result<T, String>;
}

impl<T> Built<T> for T {
    fn built(self) -> Result<T, String> {
        Ok(self)
    }
}

impl<T, E: ToString> Built<T> for Result<T, E> {
    fn built(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

fn members(value: Value) -> Result<Members, String> {
    let Value::Object(members) = value else {
        return Err(other(&value));
    };
    Ok(members)
}

fn taken<T: Lined>(members: &mut Members, name: &str) -> Result<Option<T>, String> {
    members.remove(name).map(T::read).transpose()
}

fn none_left(members: Members) -> Result<(), String> {
    if members.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no members: {:?}",
        members.keys().collect::<Vec<_>>()
    ))
}

fn written<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let there = members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect())
}

fn refused<E: Debug + ProvideErrorMetadata + std::error::Error + 'static>(
    error: SdkError<E>,
) -> Result<Value, String> {
    let SdkError::ServiceError(context) = &error else {
        return Err(DisplayErrorContext(&error).to_string());
    };
    let refusal = context.err();
    // A variant for each class; Unhandled is the one for what the model does not know.
    let variant = format!("{refusal:?}");
    let exception = variant
        .split('(')
        .next()
        .filter(|name| *name != "Unhandled");
    Ok(json!({"refused": {
        "code": refusal.code(),
        "text": refusal.message().unwrap_or_default(),
        "status": context.raw().status().as_u16(),
        "exception": exception,
    }}))
}

pub struct Clients {
    sqs: aws_sdk_sqs::Client,
    sns: aws_sdk_sns::Client,
    scheduler: aws_sdk_scheduler::Client,
    sts: aws_sdk_sts::Client,
}

macro_rules! client {
    ($service:ident) => {{
        let environment = |name| var(name).unwrap_or_default();
        let token = var("AWS_SESSION_TOKEN").ok();
        let (key, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
        let credentials =
            Credentials::new(environment(key), environment(secret), token, None, "driver");
        let configuration = $service::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(environment("AWS_ENDPOINT_URL"))
            .region(Region::new(environment("AWS_DEFAULT_REGION")))
            .credentials_provider(credentials)
            .retry_config(RetryConfig::disabled())
            .http_client(aws_smithy_http_client::Builder::new().build_http());
        $service::Client::from_conf(configuration.build())
    }};
}

async fn answer(clients: &Clients, line: &str) -> Result<Value, String> {
    let mut asked: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let given = members(asked["members"].take())?;
    let name = |key: &str| asked[key].as_str().unwrap_or_default();
    calls::call(clients, name("service"), name("action"), given).await
}

fn say(content: &Value) {
    println!("{content}");
    stdout().flush().expect("standard output is open");
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let clients = Clients {
        sqs: client!(aws_sdk_sqs),
        sns: client!(aws_sdk_sns),
        scheduler: client!(aws_sdk_scheduler),
        sts: client!(aws_sdk_sts),
    };
    let version = format!("Rust SDK {}", aws_sdk_sqs::meta::PKG_VERSION);
    say(&json!({"client": version, "protocol": "json", "ordered": false}));
    for line in stdin().lines() {
        let line = line.expect("standard input is UTF-8");
        say(&answer(&clients, &line)
            .await
            .unwrap_or_else(|text| json!({"broken": text})));
    }
}
