//! From a request to its answer: the routes, and what each does.

use crate::binder::{self, Binder};
use crate::body::{Held, Reply, Room};
use crate::choices::Choices;
use crate::door::{self, Door, Place, Thought, Update, Work};
use crate::guard::Guard;
use crate::metrics::Metrics;
use crate::page;
use crate::spelling;
use crate::stream::{Coming, Events};
use crate::wire::chat::{ChatRequest, Served};
use crate::wire::completions::{CompletionRequest, Given};
use crate::wire::error::ApiError;
use crate::wire::fields;
use crate::wire::reply::{Head, Shape, call_refusal};
use crate::wire::sampling::Ending;
use fieldfare::chat;
use fieldfare::engine::{GenerateOptions, OutputMode};
use fieldfare::grammar::Rules;
use fieldfare::sample::Plan;
use fieldfare::store::Board;
use fieldfare::tokenizer::Tokenizer;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What is there before the model is: it turns strangers away, and tells others to wait.
pub(crate) struct Front {
    /// Who may come in.
    pub(crate) guard: Guard,
    /// Counters and log.
    pub(crate) metrics: Arc<Metrics>,
    /// Everything else, once the model is open.
    pub(crate) app: OnceLock<Arc<App>>,
}

impl Front {
    fn app(&self) -> Result<&Arc<App>, Box<ApiError>> {
        self.app.get().ok_or_else(|| Box::new(ApiError::loading()))
    }

    /// How many run and how many wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        self.app.get().map_or((0, 0), |app| app.door.load())
    }
}

/// What all requests share.
pub(crate) struct App {
    /// The way to the engine.
    pub(crate) door: Door,
    /// Text to ids and back.
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// Makes what answers are bound to.
    pub(crate) binder: Binder,
    /// Answers of one request that may run side by side.
    pub(crate) parallel: usize,
    /// What requests are checked against.
    pub(crate) served: Served,
    /// How much of bodies may be in memory.
    pub(crate) room: Room,
    /// Counters and log.
    pub(crate) metrics: Arc<Metrics>,
    /// When the model was made, in seconds since 1970.
    pub(crate) created: u64,
    /// Tokens of context that it was made for.
    pub(crate) trained_context: Option<u64>,
    /// Bytes of its files.
    pub(crate) size: u64,
    /// Numbers that it was trained to have, quantized or not.
    pub(crate) parameters: u64,
    /// Longest time for an answer from its first token on.
    pub(crate) max_generation: Option<Duration>,
    /// Names weights and program.
    pub(crate) fingerprint: String,
    /// Which experts are in memory.
    pub(crate) board: Option<Arc<Board>>,
    /// Pause after which a stream gives a sign of life.
    pub(crate) keep_alive: Duration,
    /// Thoughts go out under both names.
    pub(crate) both_reasoning: bool,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    Root,
    Stats,
    Health,
    Metrics,
    Models,
    Model(String),
    Chat,
    Completions,
    Tokenize,
    Detokenize,
    Template,
}

impl Route {
    /// Reads a path: with or without `/v1`. Slashes at the end and doubled ones do not matter (a base address that ends in
    /// one makes `//v1`), nor what is escaped without need.
    fn of(path: &str) -> Option<Self> {
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(unescaped).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts[..] {
            [] | ["v1"] => Some(Self::Root),
            ["healthz"] => Some(Self::Health),
            ["metrics"] => Some(Self::Metrics),
            ["stats"] => Some(Self::Stats),
            ["v1", ref rest @ ..] => Self::of_parts(rest),
            ref parts => Self::of_parts(parts),
        }
    }

    fn of_parts(parts: &[&str]) -> Option<Self> {
        match parts {
            ["health"] => Some(Self::Health),
            ["models"] => Some(Self::Models),
            ["models", name @ ..] => Some(Self::Model(name.join("/"))),
            ["chat", "completions"] => Some(Self::Chat),
            ["completions"] => Some(Self::Completions),
            ["tokenize"] => Some(Self::Tokenize),
            ["detokenize"] => Some(Self::Detokenize),
            ["apply-template"] => Some(Self::Template),
            _ => None,
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Stats => "stats",
            Self::Health => "health",
            Self::Metrics => "metrics",
            Self::Models | Self::Model(_) => "models",
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
            Self::Template => "template",
        }
    }

    fn methods(&self) -> &'static str {
        match self {
            Self::Chat | Self::Completions | Self::Tokenize | Self::Detokenize | Self::Template => "POST",
            _ => "GET, HEAD",
        }
    }

    fn takes(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|name| name == method.as_str())
    }
}

/// `%2F` and the like; what is no escape stays.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let code = if *first == b'%' { more.get(..2) } else { None };
        let code = code.filter(|code| code.iter().all(u8::is_ascii_hexdigit));
        match code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

type Outcome = Result<Response<Reply>, Box<ApiError>>;

/// Answers a request, whatever it is.
pub(crate) async fn handle(front: Arc<Front>, request: Request<Incoming>) -> Response<Reply> {
    let preflight = Guard::is_preflight(request.method(), request.headers());
    let route = Route::of(request.uri().path());
    let label = if preflight { "preflight" } else { route.as_ref().map_or("other", Route::label) };
    let cors = front.guard.cors(request.headers());
    let name = request_name(&request);
    let outcome =
        if preflight { answer_preflight(&front, &request) } else { answer(&front, route, request).await };
    let mut response = outcome.unwrap_or_else(|error| refusal(&error));
    let headers = response.headers_mut();
    if !preflight {
        headers.extend(cors);
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    // By this a second server on the same port is told apart from a stranger.
    headers.insert(header::SERVER, HeaderValue::from_static("fieldfare"));
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(HeaderName::from_static("x-request-id"), name);
    }
    front.metrics.request(label, response.status().as_u16());
    response
}

/// The client's own name for the request if it is a harmless one, else a new one.
fn request_name(request: &Request<Incoming>) -> String {
    let given = request.headers().get("x-request-id").and_then(|value| value.to_str().ok());
    let harmless = |name: &&str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    given.filter(harmless).map_or_else(|| crate::wire::id::answer("req_"), str::to_owned)
}

fn answer_preflight(front: &Front, request: &Request<Incoming>) -> Outcome {
    let headers = front.guard.preflight(request.headers())?;
    let mut response = Response::new(Reply::Whole(None));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().extend(headers);
    Ok(response)
}

async fn answer(front: &Front, route: Option<Route>, request: Request<Incoming>) -> Outcome {
    front.guard.check(&request)?;
    // The page holds nothing that is secret, and asks for the key itself.
    let page = route == Some(Route::Root) && page::wanted(request.headers());
    if route != Some(Route::Health) && !page {
        front.guard.authorize(request.headers())?;
    }
    let Some(route) = route else { return Err(Box::new(ApiError::not_found(request.uri().path()))) };
    if !route.takes(request.method()) {
        return Err(Box::new(ApiError::method(route.methods())));
    }
    if page {
        return Ok(page::answer());
    }
    serve(front.app()?, route, request).await
}

async fn serve(app: &Arc<App>, route: Route, request: Request<Incoming>) -> Outcome {
    let (parts, body) = request.into_parts();
    match route {
        Route::Stats => Ok(json_reply(&stats(app, parts.uri.query() == Some("counts")))),
        Route::Root => Ok(json_reply(&json!({
            "name": "fieldfare",
            "version": env!("CARGO_PKG_VERSION"),
            "model": app.served.id,
        }))),
        Route::Health => Ok(json_reply(&json!({ "status": "ok" }))),
        Route::Metrics => Ok(metrics_page(app)),
        Route::Models => {
            let names = std::iter::once(&app.served.id).chain(&app.served.aliases);
            let data: Vec<Value> = names.map(|name| model_entry(app, name)).collect();
            Ok(json_reply(&json!({ "object": "list", "data": data })))
        }
        Route::Model(name) if app.served.is_called(&name) => Ok(json_reply(&model_entry(app, &name))),
        Route::Model(name) => Err(Box::new(ApiError::model(&name))),
        Route::Chat => {
            // Whoever sends slowly holds up nobody: the place is taken once the body is here.
            let body = app.room.read(&parts, body).await?;
            let place = app.door.enter()?;
            chat_completion(app, place, body).await
        }
        Route::Completions => {
            // Whoever sends slowly holds up nobody: the place is taken once the body is here.
            let body = app.room.read(&parts, body).await?;
            let place = app.door.enter()?;
            completion(app, place, body).await
        }
        Route::Tokenize => with_body(app, &parts, body, spelling::tokenize).await,
        Route::Detokenize => with_body(app, &parts, body, spelling::detokenize).await,
        Route::Template => with_body(app, &parts, body, spelling::apply_template).await,
    }
}

/// Figures of this moment, for the page and for whoever watches; with `counts` what each expert went through so far.
fn stats(app: &App, counts: bool) -> Value {
    let (running, waiting) = app.door.load();
    let mut stats = app.metrics.live();
    stats["model"] = app.served.id.clone().into();
    stats["context"] = app.served.context.into();
    stats["running"] = running.into();
    stats["waiting"] = waiting.into();
    if let Some(board) = &app.board {
        let row = |layer: usize| -> String {
            let digit =
                |at: usize| (0..4).fold(0, |bits, i| bits << 1 | u32::from(board.holds(layer, 4 * at + i)));
            (0..board.experts().div_ceil(4)).filter_map(|at| char::from_digit(digit(at), 16)).collect()
        };
        let layers: Vec<String> = (0..board.layers()).map(row).collect();
        // The door's readings are of the last answer; these of the last layer.
        let now = board.counts();
        stats["experts"] = json!({ "hits": now.hits, "misses": now.misses, "bytes_read": now.bytes_read });
        stats["experts"]["map"] = json!({ "experts": board.experts(), "layers": layers });
        if counts {
            let all = |count: &dyn Fn(usize, usize) -> u32| -> Vec<Vec<u32>> {
                let row = |layer| (0..board.experts()).map(|expert| count(layer, expert)).collect();
                (0..board.layers()).map(row).collect()
            };
            stats["experts"]["map"]["uses"] = json!(all(&|layer, expert| board.uses(layer, expert)));
            stats["experts"]["map"]["reads"] = json!(all(&|layer, expert| board.reads(layer, expert)));
        }
    }
    stats
}

fn model_entry(app: &App, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": app.created,
        "owned_by": "fieldfare",
        "max_model_len": app.served.context,
        "context_length": app.served.context,
        "meta": {
            "n_ctx": app.served.context,
            "n_ctx_train": app.trained_context,
            "n_vocab": app.served.vocabulary,
            "n_params": app.parameters,
            "size": app.size,
        },
    })
}

/// Does something where it may take its time.
async fn aside<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, Box<ApiError>> {
    let shared = app.clone();
    let done = tokio::task::spawn_blocking(move || work(&shared)).await;
    match done {
        Ok(result) => result.map_err(Box::new),
        Err(_) => {
            app.metrics.log("internal error: reading a request panicked");
            Err(Box::new(ApiError::internal()))
        }
    }
}

async fn with_body(
    app: &Arc<App>,
    parts: &Parts,
    body: Incoming,
    work: fn(&App, &[u8]) -> Result<Value, ApiError>,
) -> Outcome {
    let body = app.room.read(parts, body).await?;
    aside(app, move |app| work(app, &body.bytes)).await.map(|value| json_reply(&value))
}

async fn chat_completion(app: &Arc<App>, place: Place, body: Held) -> Outcome {
    let (chat, head, stream) = aside(app, move |app| {
        let request = ChatRequest::parse(&fields::object(&body.bytes)?, &app.served)?;
        let mut head = head(app, Shape::Chat, request.include_usage);
        head.each = request.count;
        let stream = request.stream;
        Ok((Chat::new(app, request)?, head, stream))
    })
    .await?;
    if let Some(room) = app.binder.try_room(&chat.rules)? {
        let works = aside(app, move |app| chat.bound(app, room)).await?;
        return respond(app, app.choices(place, works), head, stream).await;
    }
    app.metrics.log("a request waits for memory for its grammar");
    let shared = app.clone();
    let later = async move {
        let room = shared.binder.room(&chat.rules).await?;
        let works = aside(&shared, move |app| chat.bound(app, room)).await?;
        Ok::<_, Box<ApiError>>(shared.choices(place, works))
    };
    if stream {
        return Ok(events(app, head, Coming::Later(Box::pin(later))));
    }
    whole(app, head, later.await?).await
}

fn head(app: &App, shape: Shape, include_usage: bool) -> Head {
    let head = Head::new(shape, &app.served.id, include_usage, app.tokenizer.clone());
    Head { both_reasoning: app.both_reasoning, fingerprint: app.fingerprint.clone(), ..head }
}

/// The same work several times: with a seed each has its own, the first the one that was asked for.
fn repeated(work: Work, count: usize) -> impl Iterator<Item = Work> {
    (0..count as u64).map(move |number| {
        let mut work = work.clone();
        if let Some(seed) = &mut work.options.sampling.seed {
            *seed = seed.wrapping_add(number);
        }
        if number > 0 {
            // The prompt's own numbers are the same for all.
            work.options.prompt_logprobs = None;
        }
        work
    })
}

/// A chat request whose prompt is written down; what is left is the grammar of its answers.
struct Chat {
    prompt: Vec<u32>,
    rules: Rules,
    options: GenerateOptions,
    thought: Thought,
    count: usize,
}

impl Chat {
    fn new(app: &App, request: ChatRequest) -> Result<Self, ApiError> {
        let tools = &request.tools;
        if tools.opened > 0 {
            app.metrics.opened_tools.add(tools.opened as u64);
            app.metrics.log(&format!("{} tools declared without their schema", tools.opened));
        }
        if tools.loosened > 0 {
            app.metrics.log(&format!("{} strict tools whose schema cannot be enforced", tools.loosened));
        }
        let prompt = chat::render(&request.messages, &tools.declared, &request.render, &app.tokenizer)
            .map_err(|error| render_refusal(app, error))?;
        let control = app.tokenizer.control();
        let starts_inside = prompt.starts_in_reasoning;
        let options = GenerateOptions {
            sampling: request.sampling,
            max_new: fitting(app, prompt.ids.len(), request.max_tokens)?,
            stop: request.stop,
            mode: OutputMode::Chat { starts_in_reasoning: starts_inside, tools: request.tools.names() },
            logprobs: request.logprobs,
            // Where there are no tools a call could only be an error.
            suppress: request.tools.declared.is_empty().then(|| {
                let mut ids = control.suppressed();
                ids.push(control.call_open);
                ids
            }),
            ..ended(app, request.ending)
        };
        let rules = Rules {
            content: request.format,
            calls: request.tools.rules,
            choice: request.tools.choice,
            single_call: !request.tools.parallel,
            may_think: request.render.enable_thinking && !request.render.continue_final,
            starts_in_thought: starts_inside,
            thought_tokens: request.thought_tokens,
        };
        let thought = Thought { open: control.channel_open, close: control.channel_close, starts_inside };
        Ok(Self { prompt: prompt.ids, rules, options, thought, count: request.count })
    }

    /// The work that it comes to.
    fn bound(self, app: &App, room: binder::Room) -> Result<VecDeque<Work>, ApiError> {
        let plan = app.binder.bind(&self.rules, room).map_err(|error| grammar_refusal(app, error))?;
        let options = GenerateOptions {
            told_calls: plan.as_ref().map(|plan| plan.told_calls().to_vec()).unwrap_or_default(),
            plan: plan.map(|plan| Arc::new(plan) as Arc<dyn Plan>),
            ..self.options
        };
        let one_call = self.rules.single_call;
        let work = Work { prompt: self.prompt, options, one_call, thought: Some(self.thought) };
        Ok(repeated(work, self.count).collect())
    }
}

/// The options that say what ends an answer.
fn ended(app: &App, ending: Ending) -> GenerateOptions {
    let stop_ids = (!ending.stop_ids.is_empty()).then(|| {
        let mut ids = app.tokenizer.control().stop_ids();
        ids.extend(ending.stop_ids);
        ids
    });
    GenerateOptions {
        stop_ids,
        min_new: ending.least,
        longest: app.max_generation,
        ..GenerateOptions::default()
    }
}

fn grammar_refusal(app: &App, error: fieldfare::Error) -> ApiError {
    match error {
        fieldfare::Error::BadRequest { field, reason } if field == "schema" => {
            ApiError::bad("invalid_json_schema", "response_format", reason)
        }
        fieldfare::Error::BadRequest { field, reason } => ApiError::value(field, reason),
        other => {
            app.metrics.log(&format!("internal error: {other}"));
            ApiError::internal()
        }
    }
}

/// What a client is told of a conversation that cannot be written down.
pub(crate) fn render_refusal(app: &App, error: fieldfare::Error) -> ApiError {
    match error {
        fieldfare::Error::BadRequest { field, reason } => ApiError::bad("invalid_message", field, reason),
        other => {
            app.metrics.log(&format!("internal error: {other}"));
            ApiError::internal()
        }
    }
}

/// How many tokens may be made after a prompt of this length.
fn fitting(app: &App, prompt: usize, wanted: usize) -> Result<usize, ApiError> {
    let context = app.served.context;
    if prompt > context {
        return Err(ApiError::too_long(prompt, context));
    }
    // One more than what is left: the last token made need not be fed.
    Ok(wanted.min(context - prompt + 1))
}

async fn completion(app: &Arc<App>, place: Place, body: Held) -> Outcome {
    let (works, head, stream) = aside(app, move |app| {
        let request = CompletionRequest::parse(&fields::object(&body.bytes)?, &app.served)?;
        let mut head = head(app, Shape::Text, request.include_usage);
        head.each = request.count;
        head.echo_scored = request.echo && request.logprobs.is_some();
        let mut works = VecDeque::new();
        for (i, given) in request.prompts.iter().enumerate() {
            let prompt = request.ids(given, &app.tokenizer);
            let param = if request.prompts.len() > 1 { format!("prompt[{i}]") } else { "prompt".to_owned() };
            let max_new = fitting(app, prompt.len(), request.max_tokens)
                .map_err(|error| ApiError { param: Some(param), ..error })?;
            if request.echo {
                head.echo.push(match given {
                    Given::Text(text) => text.clone(),
                    Given::Ids(ids) => app.tokenizer.decode(ids, true),
                });
            }
            let options = GenerateOptions {
                sampling: request.sampling.clone(),
                max_new,
                stop: request.stop.clone(),
                logprobs: request.logprobs,
                prompt_logprobs: request.logprobs.filter(|_| request.echo),
                ..ended(app, request.ending.clone())
            };
            let work = Work { prompt, options, one_call: false, thought: None };
            works.extend(repeated(work, request.count));
        }
        Ok((works, head, request.stream))
    })
    .await?;
    // The numbers of a prompt come with its first answer, for all of them.
    respond(app, Choices::new(place, works, 1), head, stream).await
}

impl App {
    /// Hands in what a chat request comes to; its answers run side by side where others' do.
    fn choices(&self, place: Place, works: VecDeque<Work>) -> Choices {
        Choices::new(place, works, self.parallel)
    }
}

async fn respond(app: &App, choices: Choices, head: Head, stream: bool) -> Outcome {
    if stream { Ok(events(app, head, Coming::Now(choices))) } else { whole(app, head, choices).await }
}

/// An answer piece by piece.
fn events(app: &App, head: Head, coming: Coming) -> Response<Reply> {
    let events = Events::new(head, coming, app.keep_alive, app.metrics.clone());
    let mut response = Response::new(Reply::Events(Box::new(events)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// An answer, or several, once they are complete.
async fn whole(app: &App, head: Head, mut choices: Choices) -> Outcome {
    let mut outcomes = BTreeMap::new();
    while let Some((index, update)) = std::future::poll_fn(|cx| choices.poll(cx)).await {
        match update {
            Update::Done(outcome) => {
                if let Some(error) = &outcome.generation.call_error {
                    app.metrics.log(&format!("a tool call could not be read: {}", error.kind.name()));
                    return Err(Box::new(call_refusal(error)));
                }
                outcomes.insert(index, *outcome);
            }
            Update::Failed(error) => return Err(error),
            _ => {}
        }
    }
    let outcomes: Vec<door::Outcome> = outcomes.into_values().collect();
    Ok(json_reply(&head.whole(&outcomes)))
}

fn metrics_page(app: &App) -> Response<Reply> {
    let (running, waiting) = app.door.load();
    let page = app.metrics.page(running, waiting, app.binder.held());
    let mut response = Response::new(Reply::Whole(Some(Bytes::from(page))));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn json_reply(value: &Value) -> Response<Reply> {
    let mut response = Response::new(Reply::Whole(Some(Bytes::from(value.to_string()))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A refusal as a response.
fn refusal(error: &ApiError) -> Response<Reply> {
    let mut response = json_reply(&error.body());
    *response.status_mut() = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(seconds) = error.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(allow) = error.allow {
        headers.insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    match error.status {
        401 => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // What is left of the request is not worth reading.
        408 | 413 | 431 => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        500 => {
            headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
        }
        _ => {}
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_clients_mean() {
        for (path, wanted) in [
            ("/", Some(Route::Root)),
            ("/v1", Some(Route::Root)),
            ("/v1/chat/completions", Some(Route::Chat)),
            ("/chat/completions/", Some(Route::Chat)),
            ("/v1/completions", Some(Route::Completions)),
            ("/v1/models/a%2Fb%zz", Some(Route::Model("a/b%zz".into()))),
            ("/healthz", Some(Route::Health)),
            ("/v1/health", Some(Route::Health)),
            ("/v1chat/completions", None),
            ("//v1/chat/completions", Some(Route::Chat)),
            ("/v1//models//", Some(Route::Models)),
            ("/v1/%6dodels", Some(Route::Models)),
            ("/models/a/b", Some(Route::Model("a/b".into()))),
            ("//", Some(Route::Root)),
            ("/v1/chat%2Fcompletions", None),
            ("/v1/metrics", None),
            ("/v1/embeddings", None),
            ("/v1/v1/models", None),
        ] {
            assert_eq!(Route::of(path), wanted, "{path}");
        }
    }
}
