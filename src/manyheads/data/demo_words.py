"""The words of the demo sentences: ambiguous words, their senses, and what surrounds them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sense:
    """One sense of an ambiguous word: who and where it belongs to, and clauses that show it by themselves."""

    people: tuple[str, ...]
    places: tuple[str, ...]
    clauses: tuple[str, ...]


SENSES: dict[str, dict[str, Sense]] = {
    "check": {
        "bank": Sense(
            ("bank teller", "cashier", "loan officer", "accountant", "bookkeeper"),
            ("savings bank", "credit union", "cashier's office", "branch office", "accounting department"),
            (
                "cashed the check before the counter closed",
                "signed the check and paid the rent with it",
                "deposited the check in a new account",
                "lost the check together with the wallet",
                "wrote a check for two hundred dollars",
                "waited three days for the check to clear",
            ),
        ),
        "chess": Sense(
            ("chess master", "grandmaster", "chess champion", "tournament player", "chess coach"),
            ("chess club", "tournament hall", "chess academy", "chess cafe", "championship room"),
            (
                "gave check with the black queen",
                "escaped the check by moving the king",
                "answered the check with a clever knight",
                "saw the check too late and lost the game",
                "blocked the check with a bishop",
                "announced check after the rook had moved",
            ),
        ),
        "homework": Sense(
            ("math teacher", "tutor", "schoolgirl", "pupil", "headmaster"),
            ("classroom", "primary school", "study hall", "school library", "staff room"),
            (
                "got a red check beside every correct answer",
                "put a check next to the finished exercise",
                "wanted a check under the essay about whales",
                "earned a check for the spelling list",
                "left no check on the unfinished worksheet",
                "counted the check marks in the notebook, and one check was missing",
            ),
        ),
    },
    "station": {
        "train": Sense(
            ("train driver", "railway guard", "ticket inspector", "commuter", "signalman"),
            ("railway depot", "ticket hall", "dining car", "signal box", "railway museum"),
            (
                "got off the express at the next station",
                "missed the last train at the station",
                "waited on the platform of the station",
                "bought a ticket to the final station",
                "met an old friend on the rails behind the station",
                "slept in the carriage and passed the station",
            ),
        ),
        "fuel": Sense(
            ("trucker", "pump attendant", "taxi driver", "car mechanic", "motorcyclist"),
            ("repair garage", "truck stop", "car wash", "tyre shop", "parking garage"),
            (
                "filled the tank at the station",
                "bought diesel at the cheapest station",
                "ran out of petrol before the station",
                "checked the tyre pressure at the station",
                "paid for oil and a car wash at the station",
                "found every pump of the station empty",
            ),
        ),
        "radio": Sense(
            ("newsreader", "disc jockey", "announcer", "sound engineer", "talk show host"),
            ("recording studio", "newsroom", "broadcasting house", "control room", "listening booth"),
            (
                "tuned in to the station for the evening news",
                "heard a favourite song on the station",
                "turned the dial until the station came in",
                "called the station to win a concert ticket",
                "listened to a jazz station all night",
                "complained about the advertisements on the station",
            ),
        ),
    },
    "pitch": {
        "music": Sense(
            ("violinist", "singer", "choirmaster", "piano tuner", "cellist"),
            ("concert hall", "rehearsal room", "opera house", "music school", "organ loft"),
            (
                "sang the high note with perfect pitch",
                "raised the pitch of the guitar string",
                "could not hold the pitch in the second verse",
                "heard the flute fall below the pitch",
                "set the pitch with a tuning fork",
                "learned to hear the pitch of every chord",
            ),
        ),
        "baseball": Sense(
            ("catcher", "batter", "umpire", "outfielder", "shortstop"),
            ("ballpark", "dugout", "batting cage", "locker room", "bullpen"),
            (
                "hit the first pitch over the fence",
                "swung at a curving pitch and missed",
                "threw the last pitch of the ninth inning",
                "caught a wild pitch behind the plate",
                "struck out on a fast pitch",
                "ran to first base after the pitch",
            ),
        ),
        "sales": Sense(
            ("salesman", "investor", "advertising agent", "startup founder", "marketing director"),
            ("boardroom", "trade fair", "sales office", "advertising agency", "start-up hub"),
            (
                "closed the deal after a short pitch",
                "bored every customer with the pitch",
                "practised the pitch for the new product",
                "won two clients with one pitch",
                "ended the pitch with a discount",
                "printed slides for the pitch to the buyers",
            ),
        ),
    },
}

NAMES = (
    *(
        "Ada",
        "Amir",
        "Anna",
        "Bela",
        "Carlos",
        "Chen",
        "Clara",
        "David",
        "Elena",
        "Emma",
        "Farid",
        "Grace",
        "Hana",
        "Ivan",
    ),
    *(
        "Jonas",
        "Julia",
        "Kofi",
        "Lara",
        "Leo",
        "Lucia",
        "Marta",
        "Mei",
        "Mila",
        "Nadia",
        "Nora",
        "Omar",
        "Oscar",
        "Paula",
    ),
    *("Priya", "Rosa", "Samir", "Sofia", "Tariq", "Tom", "Vera", "Viktor", "Yara", "Zoe"),
)
CITIES = (
    *(
        "Oslo",
        "Lima",
        "Cairo",
        "Boston",
        "Prague",
        "Nairobi",
        "Lisbon",
        "Kyoto",
        "Dublin",
        "Toronto",
        "Athens",
        "Hanoi",
    ),
    *("Vienna", "Quito", "Sydney", "Warsaw", "Lagos", "Madrid", "Seoul", "Geneva"),
)
SITES = (
    *("near the river", "on the hill", "behind the park", "across the street", "by the old bridge", "in the suburbs"),
    *(
        "next to the bakery",
        "at the corner",
        "beside the hotel",
        "around the block",
        "under the arches",
        "in the old town",
    ),
)
TIMES = (
    *("", "", "on Monday", "on Friday night", "last week", "yesterday", "this morning", "before lunch", "after dinner"),
    *("in the rain", "for the second time", "without a word", "once more", "in May", "at noon"),
)
