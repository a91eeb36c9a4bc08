import os

os.environ["SHOP_MODE"] = "open"
