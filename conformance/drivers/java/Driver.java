import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.net.URI;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentials;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.awscore.client.builder.AwsClientBuilder;
import software.amazon.awssdk.awscore.exception.AwsServiceException;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.core.SdkField;
import software.amazon.awssdk.core.SdkPojo;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.protocol.MarshallingType;
import software.amazon.awssdk.core.traits.ListTrait;
import software.amazon.awssdk.core.traits.MapTrait;
import software.amazon.awssdk.core.util.SdkAutoConstructList;
import software.amazon.awssdk.core.util.SdkAutoConstructMap;
import software.amazon.awssdk.core.util.VersionInfo;
import software.amazon.awssdk.protocols.jsoncore.JsonNode;
import software.amazon.awssdk.protocols.jsoncore.JsonWriter;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.retries.DefaultRetryStrategy;
import software.amazon.awssdk.services.scheduler.SchedulerClient;
import software.amazon.awssdk.services.sns.SnsClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sts.StsClient;
import software.amazon.awssdk.utils.builder.SdkBuilder;

/** Drives the AWS SDK for Java (conformance/clients/README.md). */
public class Driver {
    private static final Map<String, Object> CLIENTS = Map.of(
            "sqs", client(SqsClient.builder()),
            "sns", client(SnsClient.builder()),
            "scheduler", client(SchedulerClient.builder()),
            "sts", client(StsClient.builder()));

    private static <B extends AwsClientBuilder<B, C>, C> C client(B builder) {
        Map<String, String> environment = System.getenv();
        String key = environment.get("AWS_ACCESS_KEY_ID");
        String secret = environment.get("AWS_SECRET_ACCESS_KEY");
        String token = environment.get("AWS_SESSION_TOKEN");
        int attempts = Integer.parseInt(environment.getOrDefault("CONFORMANCE_ATTEMPTS", "1"));
        AwsCredentials credentials = token == null
                ? AwsBasicCredentials.create(key, secret)
                : AwsSessionCredentials.create(key, secret, token);
        return builder.endpointOverride(URI.create(environment.get("AWS_ENDPOINT_URL")))
                .region(Region.of(environment.get("AWS_DEFAULT_REGION")))
                .credentialsProvider(StaticCredentialsProvider.create(credentials))
                .overrideConfiguration(one -> one.retryStrategy(
                        DefaultRetryStrategy.standardStrategyBuilder().maxAttempts(attempts).build()))
                .build();
    }

    public static void main(String[] arguments) throws Exception {
        say(Map.of("client", "Java SDK " + VersionInfo.SDK_VERSION, "protocol", "json", "retries", true));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            say(answer(JsonNode.parser().parse(line).asObject()));
        }
    }

    private static Map<String, Object> answer(Map<String, JsonNode> asked) {
        String action = asked.get("action").asString();
        Object client = CLIENTS.get(asked.get("service").asString());
        try {
            String models = client.getClass().getPackageName() + ".model.";
            // Its classes are called otherwise than its methods.
            String model = models + action.replace("SMS", "Sms");
            Class<?> type = Class.forName(model + "Request");
            SdkBuilder<?, ?> builder = (SdkBuilder<?, ?>) type.getMethod("builder").invoke(null);
            fill((SdkPojo) builder, asked.get("members").asObject());
            String name = action.substring(0, 1).toLowerCase() + action.substring(1);
            Class<?> service = client.getClass().getInterfaces()[0];
            Object done = service.getMethod(name, type).invoke(client, builder.build());
            return Map.of("result", plain((SdkPojo) done));
        } catch (InvocationTargetException error) {
            return failed(error.getCause());
        } catch (ReflectiveOperationException | RuntimeException error) {
            return Map.of("broken", String.valueOf(error));
        }
    }

    private static Map<String, Object> failed(Throwable error) {
        if (!(error instanceof AwsServiceException)) {
            return Map.of("broken", String.valueOf(error));
        }
        AwsServiceException refusal = (AwsServiceException) error;
        Map<String, Object> refused = new LinkedHashMap<>();
        refused.put("code", refusal.awsErrorDetails().errorCode());
        refused.put("text", refusal.awsErrorDetails().errorMessage());
        refused.put("status", refusal.statusCode());
        String name = refusal.getClass().getSimpleName();
        boolean isNamed = refusal.getClass().getSuperclass().getSuperclass()
                != AwsServiceException.class;
        refused.put("exception", isNamed ? name.replaceFirst("Exception$", "") : null);
        return Map.of("refused", refused);
    }

    /** Sets the members of a request, or of what is in one. */
    private static void fill(SdkPojo builder, Map<String, JsonNode> members) {
        for (SdkField<?> field : builder.sdkFields()) {
            // A few members are called otherwise than in the model.
            boolean isPlain = members.containsKey(field.memberName());
            String name = isPlain ? field.memberName() : field.locationName();
            JsonNode value = members.remove(name);
            if (value != null) {
                field.set(builder, given(field, value));
            }
        }
        if (!members.isEmpty()) {
            throw new IllegalArgumentException("no members: " + members.keySet());
        }
    }

    private static Object given(SdkField<?> field, JsonNode value) {
        MarshallingType<?> type = field.marshallingType();
        if (type == MarshallingType.LIST) {
            SdkField<?> item = field.getTrait(ListTrait.class).memberFieldInfo();
            List<Object> items = new ArrayList<>();
            value.asArray().forEach(one -> items.add(given(item, one)));
            return items;
        }
        if (type == MarshallingType.MAP) {
            SdkField<?> item = field.getTrait(MapTrait.class).valueFieldInfo();
            Map<String, Object> items = new LinkedHashMap<>();
            value.asObject().forEach((name, one) -> items.put(name, given(item, one)));
            return items;
        }
        if (type == MarshallingType.SDK_POJO) {
            SdkPojo inner = field.constructor().get();
            fill(inner, value.asObject());
            return ((SdkBuilder<?, ?>) inner).build();
        }
        if (type == MarshallingType.SDK_BYTES) {
            String text = value.asObject().get("$base64").asString();
            return SdkBytes.fromByteArray(Base64.getDecoder().decode(text));
        }
        if (type == MarshallingType.INTEGER) {
            return Integer.valueOf(value.asNumber());
        }
        if (type == MarshallingType.LONG) {
            return Long.valueOf(value.asNumber());
        }
        if (type == MarshallingType.BOOLEAN) {
            return value.asBoolean();
        }
        return type == MarshallingType.INSTANT ? Instant.parse(value.asString()) : value.asString();
    }

    /** What there is of an answer, as JSON has it. */
    private static Object plain(Object value) {
        if (value instanceof SdkPojo) {
            Map<String, Object> members = new LinkedHashMap<>();
            for (SdkField<?> field : ((SdkPojo) value).sdkFields()) {
                Object member = field.getValueOrDefault(value);
                boolean isThere = member != null && !(member instanceof SdkAutoConstructList)
                        && !(member instanceof SdkAutoConstructMap);
                if (isThere) {
                    members.put(field.memberName(), plain(member));
                }
            }
            return members;
        }
        if (value instanceof List) {
            List<Object> items = new ArrayList<>();
            ((List<?>) value).forEach(item -> items.add(plain(item)));
            return items;
        }
        if (value instanceof Map) {
            Map<Object, Object> items = new LinkedHashMap<>();
            ((Map<?, ?>) value).forEach((name, item) -> items.put(name, plain(item)));
            return items;
        }
        if (value instanceof SdkBytes) {
            byte[] bytes = ((SdkBytes) value).asByteArray();
            return Map.of("$base64", Base64.getEncoder().encodeToString(bytes));
        }
        return value instanceof Instant ? value.toString() : value;
    }

    private static void say(Map<String, Object> content) {
        JsonWriter writer = JsonWriter.create();
        write(writer, content);
        System.out.println(new String(writer.getBytes(), java.nio.charset.StandardCharsets.UTF_8));
    }

    private static void write(JsonWriter writer, Object value) {
        if (value instanceof Map) {
            writer.writeStartObject();
            ((Map<?, ?>) value).forEach((name, member) -> {
                writer.writeFieldName(String.valueOf(name));
                write(writer, member);
            });
            writer.writeEndObject();
        } else if (value instanceof List) {
            writer.writeStartArray();
            ((List<?>) value).forEach(item -> write(writer, item));
            writer.writeEndArray();
        } else if (value == null) {
            writer.writeNull();
        } else if (value instanceof Boolean) {
            writer.writeValue((Boolean) value);
        } else if (value instanceof Number) {
            writer.writeValue(((Number) value).longValue());
        } else {
            writer.writeValue(String.valueOf(value));
        }
    }
}
