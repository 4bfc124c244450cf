// Drives the AWS SDK for Go (conformance/clients/README.md).
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

type asked struct {
	Service, Action string
	Members         any
}

type refused struct {
	Code      string  `json:"code"`
	Text      string  `json:"text"`
	Status    *int    `json:"status"`
	Exception *string `json:"exception"`
}

// Members that the AWS model writes with a small letter, which this SDK does not.
var small = map[string]string{
	"CheckIfPhoneNumberIsOptedOut.IsOptedOut": "isOptedOut",
	"GetSMSAttributes.Attributes":             "attributes",
	"ListDeadLetterSourceQueues.QueueUrls":    "queueUrls",
	"ListPhoneNumbersOptedOut.NextToken":      "nextToken",
	"ListPhoneNumbersOptedOut.PhoneNumbers":   "phoneNumbers",
}

// Sends bodies as plain bytes. With smithy-go 1.28.8 net/http writes the body of a request itself,
// and smithy closes that body as soon as the head of the answer is there. If the goroutine that
// writes has not looked for further bytes by then, it takes the end of the closed body for an
// error and closes the connection, in the middle of an answer that is longer than its buffer:
// "use of closed network connection". It happens on busy machines, with any server.
type plainBodies struct{ *awshttp.BuildableClient }

func (client plainBodies) Do(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		content, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(content))
	}
	return client.BuildableClient.Do(request)
}

func main() {
	attempts, _ := strconv.Atoi(os.Getenv("CONFORMANCE_ATTEMPTS"))
	configuration := aws.Config{
		HTTPClient:   plainBodies{awshttp.NewBuildableClient()},
		Region:       os.Getenv("AWS_DEFAULT_REGION"),
		BaseEndpoint: aws.String(os.Getenv("AWS_ENDPOINT_URL")),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{
				AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
				SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
				SessionToken:    os.Getenv("AWS_SESSION_TOKEN"),
			}, nil
		}),
		Retryer: func() aws.Retryer {
			if attempts < 2 {
				return aws.NopRetryer{}
			}
			return retry.NewStandard(func(options *retry.StandardOptions) {
				options.MaxAttempts = attempts
			})
		},
	}
	clients := map[string]reflect.Value{
		"sqs":       reflect.ValueOf(sqs.NewFromConfig(configuration)),
		"sns":       reflect.ValueOf(sns.NewFromConfig(configuration)),
		"scheduler": reflect.ValueOf(scheduler.NewFromConfig(configuration)),
		"sts":       reflect.ValueOf(sts.NewFromConfig(configuration)),
	}
	say(map[string]any{"client": "Go SDK " + aws.SDKVersion, "protocol": "json", "ordered": false, "retries": true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		say(answer(clients, lines.Bytes()))
	}
}

func say(content any) {
	line, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func answer(clients map[string]reflect.Value, line []byte) map[string]any {
	var call asked
	if err := json.Unmarshal(line, &call); err != nil {
		return map[string]any{"broken": err.Error()}
	}
	method := clients[call.Service].MethodByName(call.Action)
	if !method.IsValid() {
		return map[string]any{"broken": "there is no " + call.Action}
	}
	input := reflect.New(method.Type().In(1).Elem())
	members, _ := json.Marshal(unmarked(call.Members))
	if err := json.Unmarshal(members, input.Interface()); err != nil {
		return map[string]any{"broken": err.Error()}
	}
	done := method.Call([]reflect.Value{reflect.ValueOf(context.Background()), input})
	if err, isError := done[1].Interface().(error); isError {
		return failed(err)
	}
	result := marked(done[0]).(map[string]any)
	delete(result, "ResultMetadata")
	for name, value := range result {
		if other, isSmall := small[call.Action+"."+name]; isSmall {
			delete(result, name)
			result[other] = value
		}
	}
	return map[string]any{"result": result}
}

func failed(err error) map[string]any {
	var refusal smithy.APIError
	if !errors.As(err, &refusal) {
		return map[string]any{"broken": err.Error()}
	}
	told := refused{Code: refusal.ErrorCode(), Text: refusal.ErrorMessage()}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		status := response.HTTPStatusCode()
		told.Status = &status
	}
	if _, isUnnamed := refusal.(*smithy.GenericAPIError); !isUnnamed {
		name := reflect.TypeOf(refusal).Elem().Name()
		told.Exception = &name
	}
	return map[string]any{"refused": told}
}

// Bytes as encoding/json takes them.
func unmarked(value any) any {
	switch found := value.(type) {
	case map[string]any:
		if text, isBytes := found["$base64"]; isBytes && len(found) == 1 {
			return text
		}
		for name, member := range found {
			found[name] = unmarked(member)
		}
	case []any:
		for number, item := range found {
			found[number] = unmarked(item)
		}
	}
	return value
}

// What the SDK returned as JSON, without what is not there.
func marked(value reflect.Value) any {
	switch found := value.Interface().(type) {
	case []byte:
		return map[string]any{"$base64": base64.StdEncoding.EncodeToString(found)}
	case time.Time:
		return found.Format(time.RFC3339Nano)
	}
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		return marked(value.Elem())
	case reflect.Slice:
		items := []any{}
		for number := range value.Len() {
			items = append(items, marked(value.Index(number)))
		}
		return items
	case reflect.Map:
		members := map[string]any{}
		for _, name := range value.MapKeys() {
			members[name.String()] = marked(value.MapIndex(name))
		}
		return members
	case reflect.Struct:
		members := map[string]any{}
		for number := range value.NumField() {
			member := value.Field(number)
			name := value.Type().Field(number).Name
			switch member.Kind() {
			case reflect.Map, reflect.Pointer, reflect.Slice, reflect.String:
				if member.IsZero() {
					continue
				}
			}
			if value.Type().Field(number).IsExported() {
				members[name] = marked(member)
			}
		}
		return members
	}
	return value.Interface()
}
