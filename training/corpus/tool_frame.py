"""What surrounds a request in the tool tasks: other declared tools, system messages, earlier turns, thoughts."""
import random

from . import catalogue, catalogue_open, catalogue_synth
from .catalogue_values import pick
from .dialogue import assistant, system, user

SYSTEM = ["You are a helpful assistant.", "You are Fieldfare.", "Be brief.", "You are a helpful assistant with tools.",
          "Use the tools when they help.",
          "You are an assistant that can call functions.", "You can use the tools below.", "Answer shortly.", "You are a home assistant.",
          "You are Fieldfare's demonstration model.", "Help the user with the tools you have.", "You are a friendly helper.",
          "Be concise and correct.",
          "You have access to functions. Call one if it is needed.", "You are an office assistant.",
          "Call a tool only when it is needed.",
          "You help with everyday tasks.", "Keep your answers short.", "You are a digital assistant.", "Answer in one sentence.",
          "You are a voice assistant.", "Be polite and brief.", "You are an AI assistant.", "Use a function if the question needs one."]
SYSTEM_TEST = ["You are a helpful assistant and can call tools.", "You are a friendly assistant.", "Be brief and polite.",
               "You are a helper with functions."]
EARLIER = [("Hello", "Hello! How can I help you?"), ("hi", "Hello! How can I help you?"), ("hey there", "Hello! How can I help you?"),
           ("Good morning", "Good morning! How can I help you?"), ("Thanks!", "You are welcome."), ("thank you", "You are welcome."),
           ("What is the capital of France?", "The capital of France is Paris."), ("what's 2+2?", "2 + 2 = 4."),
           ("What is 10 + 7?", "10 + 7 = 17."),
           ("capital of Italy?", "The capital of Italy is Rome."), ("are you there?", "Yes, I am here. How can I help you?")]


def _others(test, count=6000):
    """Declarations to stand beside the one that is asked for, as (tool key, does, declaration)."""
    rng = random.Random(11 if test else 12)
    out = []
    for i in range(count):
        if i % 2 == 0:
            a = catalogue_synth.ask(rng, test) if i % 4 else catalogue_open.ask(rng, test)
            out.append((None, a.does, a.declared))
        else:
            t = pick(rng, catalogue.TEST if test and rng.random() < 0.6 else catalogue.TRAIN)
            declared, _, does, _, _ = catalogue.declare(rng, t, test)
            out.append((t.key, does, declared))
    return out


OTHERS = (_others(False), _others(True))
# Tools that could do the same: never declared beside each other.
ALIKE = [{"get_time", "now", "get_timezone"}, {"web_search", "wikipedia", "get_news"},
         {"read_file", "read_lines", "file_info", "count_lines"},
         {"run_tests", "run_shell"}, {"search_products", "get_price", "check_stock"}, {"get_weather", "get_forecast"},
         {"set_light", "switch_device"},
         {"calculate", "tip_calculator"}, {"convert_currency", "get_exchange_rate"}, {"create_event", "create_reminder", "add_task"},
         {"git_diff", "git_status"}, {"find_files", "search_files", "list_directory"}, {"get_distance", "get_directions",
         "train_schedule"},
         {"set_thermostat", "get_room_temperature"}, {"find_device", "get_battery"}, {"create_note", "search_notes"},
         {"write_file", "append_file"},
         {"search_email", "read_inbox"}, {"find_contact", "call_contact"}, {"set_timer", "set_alarm"}, {"spell_check", "count_words"},
         {"set_light_color", "set_scene"}, {"track_order", "cancel_order"}, {"service_status", "restart_service"}, {"get_env", "set_env"},
         {"discount_price", "sales_tax", "percent_of", "calculate", "tip_calculator", "simple_interest", "split_bill"},
         {"find_device", "where_stored", "lost_item", "ring_phone", "find_place"}, {"reboot_device", "restart_service", "start_server"},
         {"show_logs", "read_lines", "read_file", "open_at_line"}, {"create_branch", "git_checkout", "merge_branch"},
         {"rename_symbol", "swap_text", "edit_file", "move_file"}, {"compare_files", "git_diff"}, {"join_files", "append_file"},
         {"backup_folder", "sync_folders", "copy_file", "move_file"}, {"disk_usage", "file_info"}, {"run_script", "run_shell", "run_tests"},
         {"lint_file", "format_code", "spell_check"}, {"average_of", "largest_rows", "query_database"}, {"comment_issue", "label_issue"},
         {"invite_person", "send_email", "send_message"}, {"move_event", "create_event", "delete_event", "plan_to", "book_doctor"},
         {"is_free", "list_events"}, {"book_room", "book_table", "book_hotel"}, {"cancel_booking", "cancel_order", "return_item"},
         {"currency_of", "get_exchange_rate"}, {"play_podcast", "play_song", "play_genre", "play_station"},
         {"lend_thing", "create_note", "remember_that", "save_parking", "write_diary", "report_problem", "flash_card"},
         {"add_task", "create_reminder", "chore_done", "give_chore", "plan_to", "wish_list", "create_note"},
         {"compare_prices", "get_price", "search_products", "gift_ideas"}, {"item_left", "check_stock"}, {"donate", "send_money", "pay_bill"},
         {"spent_on", "get_balance"}, {"pack_list", "add_to_shopping_list"}, {"bus_next", "train_schedule"},
         {"battery_of", "get_battery", "charge_car"}, {"save_page", "open_url", "page_text"}, {"is_site_up", "ping_host", "service_status"},
         {"opening_hours", "find_restaurants"}, {"report_problem", "create_issue"}, {"deploy_app", "roll_back"},
         {"build_project", "run_tests"}, {"birthday_of", "find_contact"}, {"help_at", "call_contact"}, {"read_aloud", "pronounce"},
         {"airport_info", "airport_delays", "airport_parking"}, {"meet_at", "create_event", "plan_to"}, {"finish_reminder", "create_reminder", "remind_person"},
         {"coin_history", "get_exchange_rate", "get_crypto_price"}, {"tidy_folder", "delete_file"}, {"make_qr", "shorten_url"}, {"drop_table", "delete_file"}, {"scale_service", "start_server"}]
CLASH = {}
for _group in ALIKE:
    for _key in sorted(_group):
        CLASH[_key] = CLASH.get(_key, frozenset()) | _group


def ask(rng, test, synthetic=0.4):
    if rng.random() >= synthetic:
        return catalogue.ask(rng, test)
    return catalogue_open.ask(rng, test) if rng.random() < 0.62 else catalogue_synth.ask(rng, test)


def declared(rng, test, requests, most=3, avoid=()):
    """The declarations of the requests and up to `most` others, in random order."""
    tools, names, keys = [], set(), set(avoid)
    for a in requests:
        if a.name not in names:
            names.add(a.name)
            tools.append(a.declared)
        keys.add(a.tool.key)
        keys |= CLASH.get(a.tool.key, frozenset())
    does = {a.does for a in requests}
    for a in requests:
        for d in a.rivals[: 3 if len(requests) < 2 else 1]:
            if d["function"]["name"] not in names:
                names.add(d["function"]["name"])
                tools.insert(int(rng.random() * (len(tools) + 1)), d)
    most -= len(tools) // 3
    for _ in range(int(rng.random() * (most + (4 if rng.random() < 0.08 else 1)))):
        if requests and rng.random() < 0.15:
            key, what, d = None, None, catalogue_synth.rivals(rng, test, requests[0])
            if d["function"]["description"].strip(".").lower() in {x.lower() for x in does}:
                continue
        else:
            key, what, d = pick(rng, OTHERS[test])
        name = d["function"]["name"]
        if name in names or key in keys or what in does:
            continue
        names.add(name)
        keys.add(key) if key else None
        tools.insert(int(rng.random() * (len(tools) + 1)), d)
    return tools


def opening(rng, test, chat=0.12):
    """Messages before the request: a system message with 15 in 100, some small talk."""
    out = []
    if rng.random() < 0.15:
        out.append(system(pick(rng, SYSTEM_TEST if test else SYSTEM)))
    while rng.random() < chat and len(out) < 5:
        q, a = pick(rng, EARLIER)
        out += [user(q), assistant(a)]
    return out
